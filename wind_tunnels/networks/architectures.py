"""What a network is made of: its architecture, its sizes and the spread of its weights at the start.

Five transformer families (`gpt-neox`, `phi`, `llama`, `mistral`, and `mixtral`, whose feed-forward is a mixture of
experts), on which every probe runs, and networks without attention: `lstm`, `mamba` (state space) and two feed-forward
forms. `mlp-context` sees the whole padded prefix; `mlp-position` sees the current token only, so it cannot use evidence
at all: that is the papers' strawman, and what it fails at says nothing of feed-forward networks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interp.errors import UnknownName, UsageError

from ..validation import check_positive, check_sizes

DEFAULT_HEADS = 4
DEFAULT_EXPERTS, DEFAULT_ACTIVE = 4, 2

Layers = Sequence[int] | int | str
"""Layers as a list, a single number, or `0,1`; a network keeps them as a sorted tuple."""


@dataclass(frozen=True)
class Architecture:
    """Which choices an architecture leaves."""

    has_attention: bool = True
    has_feed_forward: bool = True
    has_gate: bool = False
    """The feed-forward has three matrices where others have two."""
    can_group_heads: bool = False
    can_have_window: bool = False
    can_drop_residual: bool = False
    has_experts: bool = False

    @property
    def feed_forward_step(self) -> int:
        """The step in which its width grows: rows of experts' matrices have to be whole multiples of 16 bytes."""
        return 4 if self.has_experts else 1


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt-neox": Architecture(),
    "phi": Architecture(),
    "llama": Architecture(has_gate=True, can_group_heads=True),
    "mistral": Architecture(has_gate=True, can_group_heads=True, can_have_window=True),
    "mixtral": Architecture(has_gate=True, can_group_heads=True, has_experts=True),
    "lstm": Architecture(has_attention=False, has_feed_forward=False, can_drop_residual=True),
    "mlp-position": Architecture(has_attention=False),
    "mlp-context": Architecture(has_attention=False),
    "mamba": Architecture(has_attention=False, has_feed_forward=False),
}


NEEDED: Mapping[str, tuple[str, str]] = {
    "n_heads": ("has_attention", "heads"),
    "attention_layers": ("has_attention", "attention"),
    "n_kv_heads": ("can_group_heads", "grouped heads"),
    "window": ("can_have_window", "window"),
    "d_mlp": ("has_feed_forward", "feed-forward of its own"),
    "n_experts": ("has_experts", "experts"),
    "n_active": ("has_experts", "experts"),
}
"""Settings that only some architectures have: by which mark, and what that is in words."""


def architecture(arch: str) -> Architecture:
    """The architecture of this name; an unknown one lists the nearest."""
    if arch not in ARCHITECTURES:
        raise UnknownName("architecture", arch, ARCHITECTURES)
    return ARCHITECTURES[arch]


@dataclass(frozen=True)
class Network:
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

    def __post_init__(self) -> None:
        kind = architecture(self.arch)
        if kind.has_attention and self.n_heads is None:
            object.__setattr__(self, "n_heads", DEFAULT_HEADS)
        if kind.has_experts:
            object.__setattr__(self, "n_experts", self.n_experts or DEFAULT_EXPERTS)
            object.__setattr__(self, "n_active", self.n_active or min(DEFAULT_ACTIVE, self.n_experts or 1))
        if self.attention_layers is not None:
            object.__setattr__(self, "attention_layers", _layers(self.attention_layers))
        self._check_numbers()
        self._check_choices(kind)
        if kind.has_attention:
            self._check_attention()

    @property
    def d_feed_forward(self) -> int:
        """The width of the feed-forward: `d_mlp`, or the one that matches between gated and plain."""
        kind = architecture(self.arch)
        if self.d_mlp is not None:
            return self.d_mlp
        width = 8 * self.d_model // 3 if kind.has_gate else 4 * self.d_model
        return width - width % kind.feed_forward_step

    @property
    def silent_layers(self) -> tuple[int, ...]:
        """The layers whose attention is switched off."""
        if self.attention_layers is None:
            return ()
        kept = _layers(self.attention_layers)
        return tuple(layer for layer in range(self.n_layers) if layer not in kept)

    def _check_numbers(self) -> None:
        asked, given = f"a {self.arch} network", vars(self)
        may_be_left_out = ("n_heads", "d_mlp", "n_kv_heads", "window", "n_experts", "n_active")
        sizes = ("n_layers", "d_model", *(name for name in may_be_left_out if given[name] is not None))
        check_sizes(asked, given, dict.fromkeys(sizes, 1))
        check_positive(asked, given, ("init_std", "embedding_std", "residual_scale"))

    def _check_choices(self, kind: Architecture) -> None:
        """Refuse what this architecture does not have."""
        for name, (mark, what) in NEEDED.items():
            if getattr(self, name) != getattr(Network, name) and not getattr(kind, mark):
                others = " or ".join(arch for arch, other in ARCHITECTURES.items() if getattr(other, mark))
                raise self._refusal(f"{self.arch} has no {what}", f"Use {others}, or leave {name} out.")
        if self.n_experts is not None and self.n_active is not None and self.n_active > self.n_experts:
            raise self._refusal(
                f"{self.n_active} active experts of {self.n_experts}", "A token passes as many as there are at most."
            )
        if self.d_feed_forward % kind.feed_forward_step:
            raise self._refusal(
                f"experts of width {self.d_mlp}",
                f"Torch multiplies all experts at once: take a multiple of {kind.feed_forward_step}.",
            )
        if not self.has_residual and not kind.can_drop_residual:
            raise self._refusal(f"{self.arch} always has residual connections", "Use lstm, or leave has_residual out.")

    def _check_attention(self) -> None:
        assert self.n_heads is not None
        if self.d_model % (2 * self.n_heads):
            raise self._refusal(
                f"{self.n_heads} heads do not divide d_model = {self.d_model} into even parts",
                f"Rotary embedding turns pairs of dimensions: take a multiple of {2 * self.n_heads}.",
            )
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise self._refusal(
                f"{self.n_kv_heads} key-value heads do not divide {self.n_heads} heads",
                "Choose n_kv_heads that divides n_heads.",
            )
        named = () if self.attention_layers is None else _layers(self.attention_layers)
        strange = [layer for layer in named if not 0 <= layer < self.n_layers]
        if strange:
            raise self._refusal(
                f"attention_layers names layer {strange[0]}, and there are 0 to {self.n_layers - 1}",
                "Name layers that there are.",
            )

    def _refusal(self, found: str, fix: str) -> UsageError:
        return UsageError(asked=f"a {self.arch} network", found=found, fix=fix)


def _layers(given: Layers) -> tuple[int, ...]:
    """Layers as a sorted tuple, without repetition."""
    found = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
    try:
        layers = {int(layer) for layer in found}
    except (TypeError, ValueError) as error:
        raise UsageError(
            asked=f"attention_layers = {given!r}",
            found="it is not a list of layers",
            fix="Write attention_layers=0,1 (counted from 0), or [] for no attention at all.",
        ) from error
    return tuple(sorted(layers))
