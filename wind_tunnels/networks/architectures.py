"""Architecture, sizes and initial weight scales of a network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from interp.errors import named
from interp.system.values import read

from ..validation import POSITIVE, Checked, Conflict

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
"""The features of each architecture."""

NEEDED: Mapping[str, str] = {
    "n_heads": "heads",
    "attention_layers": ATTENTION,
    "n_kv_heads": GROUPED,
    "window": WINDOW,
    "d_mlp": FEED_FORWARD,
    "n_experts": EXPERTS,
    "n_active": EXPERTS,
}
"""Settings that need a feature."""


def architecture(arch: str) -> frozenset[str]:
    """The features of an architecture; an unknown name lists the nearest."""
    return named("architecture", str(arch), ARCHITECTURES)


def has(arch: str, setting: str) -> bool:
    """Whether the architecture has this setting."""
    return setting not in NEEDED or NEEDED[setting] in architecture(arch)


def feed_forward_step(arch: str) -> int:
    """The step of its width: torch needs rows of experts' matrices in multiples of 16 bytes."""
    return 4 if EXPERTS in ARCHITECTURES[arch] else 1


@dataclass(frozen=True)
class Network(Checked):
    """Architecture, sizes and initial weight scales of a network.

    `n_heads` defaults to 4 where there is attention; `d_mlp` to four times `d_model`, two thirds of that if gated.
    `n_kv_heads` below `n_heads` groups the heads (llama, mistral, mixtral); attention spans `window` tokens, the
    current one included (mistral). `attention_layers` keep attention (default: all); elsewhere its output projection is
    fixed at zero. Without `has_residual` an lstm has no residual connections and norms, as in the papers, where nine
    such layers did not train. A mixtral has `n_experts` feed-forwards per layer (default 4), `n_active` per token (2).

    `init_std` is the standard deviation of every matrix, `embedding_std` of the token embeddings. Matrices that write
    to the residual stream start `residual_scale` times smaller (an lstm has none): else recall does not form.
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
            object.__setattr__(self, "n_heads", 4)
        if EXPERTS in kind:
            object.__setattr__(self, "n_experts", self.n_experts or 4)
            object.__setattr__(self, "n_active", self.n_active or min(2, self.n_experts or 1))
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
        for layer in self.attending_layers:
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
    def attending_layers(self) -> Sequence[int]:
        """The layers that keep attention."""
        return range(self.n_layers) if self.attention_layers is None else _layers(self.attention_layers)


def _layers(given: Layers) -> tuple[int, ...]:
    listed = read("attention_layers", tuple[int, ...], [given] if isinstance(given, int) else given)
    return tuple(sorted(set(listed)))
