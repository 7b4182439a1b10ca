"""What a network is made of: its architecture, its sizes and the spread of its weights at the start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from interp.errors import named
from interp.system.values import read

from ..validation import POSITIVE, Checked, Conflict

DEFAULT_HEADS = 4
DEFAULT_EXPERTS, DEFAULT_ACTIVE = 4, 2
ATTENTION, FEED_FORWARD, GATE, EXPERTS = "attention", "feed-forward of its own", "gate", "experts"
GROUPED, WINDOW = "grouped heads", "window"
BARE = "layers without residual connections"
_TRANSFORMER = frozenset({ATTENTION, "heads", FEED_FORWARD})

Layers = Sequence[int] | int | str
"""Layers as a list, a single number, or `0,1`; a network keeps them as a sorted tuple."""


ARCHITECTURES: Mapping[str, frozenset[str]] = {
    "gpt-neox": _TRANSFORMER,
    "phi": _TRANSFORMER,
    "llama": _TRANSFORMER | {GATE, GROUPED},
    "mistral": _TRANSFORMER | {GATE, GROUPED, WINDOW},
    "mixtral": _TRANSFORMER | {GATE, GROUPED, EXPERTS},
    "lstm": frozenset({BARE}),
    "mlp-position": frozenset({FEED_FORWARD}),
    "mlp-context": frozenset({FEED_FORWARD}),
    "mamba": frozenset(),
}
"""What each architecture has or leaves to choose."""

NEEDED: Mapping[str, str] = {
    "n_heads": "heads",
    "attention_layers": ATTENTION,
    "n_kv_heads": GROUPED,
    "window": WINDOW,
    "d_mlp": FEED_FORWARD,
    "n_experts": EXPERTS,
    "n_active": EXPERTS,
}
"""Settings that only some architectures have, and what these have."""


def architecture(arch: str) -> frozenset[str]:
    """What the architecture of this name has; an unknown one lists the nearest."""
    return named("architecture", str(arch), ARCHITECTURES)


def has(arch: str, setting: str) -> bool:
    """Whether this setting means anything to the architecture."""
    return setting not in NEEDED or NEEDED[setting] in architecture(arch)


def feed_forward_step(arch: str) -> int:
    """The step in which its width grows: rows of experts' matrices have to be whole multiples of 16 bytes."""
    return 4 if EXPERTS in ARCHITECTURES[arch] else 1


@dataclass(frozen=True)
class Network(Checked):
    """Architecture and sizes of a network, and the spread of its weights at the start.

    `n_heads` left out is 4 where there is attention. `d_mlp` left out is four times `d_model`, two thirds of that where
    the MLP is gated, so that families match in size. `n_kv_heads` below `n_heads` groups the heads (llama, mistral,
    mixtral); `window` is how many tokens back attention reaches, the token itself included (mistral).
    `attention_layers` are those that keep attention, all if left out: elsewhere the output projection of attention is
    zero and stays so, which leaves an ordinary checkpoint of the family. Without `has_residual` the layers of an lstm
    follow one another without residual connections and norms, as in the papers, where nine of them did not train. A
    mixtral has `n_experts` feed-forwards of width `d_mlp` in every layer, 4 if left out, and each token passes
    `n_active`, 2 if left out.

    `init_std` is the spread of every matrix, `embedding_std` of the token embeddings; the matrices that write to the
    residual stream start out `residual_scale` times smaller (an lstm has none), without which the identity of the
    token drowns in the sequential families and recall does not form.
    """

    arch: str = "gpt-neox"
    n_layers: int = 3
    n_heads: int | None = None
    d_model: int = 64
    d_mlp: int | None = None
    n_kv_heads: int | None = None
    window: int | None = None
    attention_layers: Layers | None = None
    has_residual: bool = True
    init_std: float = 0.1
    embedding_std: float = 1.0
    residual_scale: float = 0.25
    n_experts: int | None = None
    n_active: int | None = None

    rules: ClassVar = dict.fromkeys(
        ("n_layers", "d_model", "n_heads", "d_mlp", "n_kv_heads", "window", "n_experts", "n_active"), 1
    ) | dict.fromkeys(("init_std", "embedding_std", "residual_scale"), POSITIVE)

    @property
    def asked(self) -> str:
        return f"a {self.arch} network"

    def __post_init__(self) -> None:
        kind = architecture(self.arch)
        if ATTENTION in kind and self.n_heads is None:
            object.__setattr__(self, "n_heads", DEFAULT_HEADS)
        if EXPERTS in kind:
            object.__setattr__(self, "n_experts", self.n_experts or DEFAULT_EXPERTS)
            object.__setattr__(self, "n_active", self.n_active or min(DEFAULT_ACTIVE, self.n_experts or 1))
        if self.attention_layers is not None:
            object.__setattr__(self, "attention_layers", _layers(self.attention_layers))
        super().__post_init__()

    def conflicts(self) -> Iterator[Conflict]:
        kind, step = architecture(self.arch), feed_forward_step(self.arch)
        for name, what in NEEDED.items():
            others = " or ".join(arch for arch, other in ARCHITECTURES.items() if what in other)
            is_lacking = getattr(self, name) != getattr(Network, name) and what not in kind
            yield is_lacking, f"{self.arch} has no {what}", f"Use {others}, or leave {name} out."
        is_more = self.n_experts is not None and (self.n_active or 0) > self.n_experts
        found = f"{self.n_active} active experts of {self.n_experts}"
        yield is_more, found, "A token passes as many as there are at most."
        fix = f"Torch multiplies all experts at once: take a multiple of {step}."
        yield self.d_feed_forward % step > 0, f"experts of width {self.d_mlp}", fix
        found, fix = f"{self.arch} always has residual connections", "Use lstm, or leave has_residual out."
        yield not self.has_residual and BARE not in kind, found, fix
        if self.n_heads is None:
            return
        found = f"{self.n_heads} heads do not divide d_model = {self.d_model} into even parts"
        fix = f"Rotary embedding turns pairs of dimensions: take a multiple of {2 * self.n_heads}."
        yield self.d_model % (2 * self.n_heads) > 0, found, fix
        found = f"{self.n_kv_heads} key-value heads do not divide {self.n_heads} heads"
        yield self.n_heads % (self.n_kv_heads or 1) > 0, found, "Choose n_kv_heads that divides n_heads."
        for layer in () if self.attention_layers is None else _layers(self.attention_layers):
            found = f"attention_layers names layer {layer}, and there are 0 to {self.n_layers - 1}"
            yield not 0 <= layer < self.n_layers, found, "Name layers that there are."

    @property
    def d_feed_forward(self) -> int:
        """The width of the feed-forward: `d_mlp`, or the one that matches between gated and plain."""
        if self.d_mlp is not None:
            return self.d_mlp
        width = 8 * self.d_model // 3 if GATE in architecture(self.arch) else 4 * self.d_model
        return width - width % feed_forward_step(self.arch)

    @property
    def silent_layers(self) -> tuple[int, ...]:
        """The layers whose attention is switched off."""
        kept = range(self.n_layers) if self.attention_layers is None else _layers(self.attention_layers)
        return tuple(layer for layer in range(self.n_layers) if layer not in kept)


def _layers(given: Layers) -> tuple[int, ...]:
    listed = read("attention_layers", tuple[int, ...], [given] if isinstance(given, int) else given)
    return tuple(sorted(set(listed)))
