"""What all edits share: layers, dose, positions, subspaces and checks. The kinds of edits are in `interp.edits`."""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from interp.capture import ModelInfo
from interp.errors import Answering, UsageError
from interp.settings import read_fields
from interp.system.calls import AnsweringType
from interp.system.digest import digest_of
from interp.system.plain_numbers import from_0

Metric = Literal["raw", "z-scored"]
_IN_WHERE = ("layer", "site", "donor")
SITES = ("q", "k", "v", "z", "resid")
AFTER_W_O = ("attn_out", "o_proj", "out", "attention_output")

KINDS: dict[str, type["Edit"]] = {}
"""The kinds of edits by name; `interp.edits` defines them."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Edit(Answering, metaclass=AnsweringType):
    """The fields of all edits. `layer` is one or several from 0 (depths, for `resid`); negative ones count back.

    A `dose` t gives x + t (edited − x): 1 is the edit, 0 none. `at` is `all`, `last`, `scored`, a column of the prompt
    set, or positions from 0. Numbers may be those of numpy, pandas or torch. Raises `UsageError` for impossible values.

    >>> interp.AttentionOff(layer=(0, 2), dose=0.5, at="last").dose
    0.5
    """

    layer: int | tuple[int, ...] = field(kw_only=False)
    dose: float = 1.0
    at: str | tuple[int, ...] = "all"

    kind: ClassVar[str]
    part: ClassVar[str]
    is_whole: ClassVar[bool]

    def __init_subclass__(cls, *, kind: str = "", part: str = "z", is_whole: bool = False) -> None:
        """Register a `kind` of edit; one that `is_whole` acts in all layers if none is named."""
        if kind:
            cls.kind, cls.part, cls.is_whole = kind, part, is_whole
            KINDS[kind] = cls

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in read_fields(type(self), self.kind, given, from_words=False).items():
            object.__setattr__(self, name, value)
        if not self._listed and not self.is_whole:
            raise self._refused("no layer is named", "Name one layer or several.")
        if not abs(self.dose) <= MOST_DOSE:
            fix = f"A dose is a finite number up to {MOST_DOSE:,.0f}, either way: 1 is the edit, 0 no edit."
            raise self._refused(f"the dose is {self.dose}", fix)
        if not self.at or (not isinstance(self.at, str) and min(self.at) < 0):
            raise self._refused(
                f"the positions are {self.at!r}", "Use all, last, scored, a column, or positions counted from 0."
            )

    @property
    def place(self) -> str:
        """The site that is edited, or the part of a layer: `block`, `attn_out`, `mlp_out`, `qk`."""
        return self.part

    @property
    def _listed(self) -> tuple[int, ...]:
        return (self.layer,) if isinstance(self.layer, int) else tuple(self.layer)

    @property
    def where(self) -> str:
        """`ablate z at layer 3`: its kind, and what of which layers it edits."""
        listed = ", ".join(map(str, self._listed))
        layers = f"layer {listed}" if listed else "all layers" if self.is_whole else "no layer"
        return f"{self.kind} {self.place} at {layers}"

    def __str__(self) -> str:
        """`ablate z at layer 3, dose 0.5, at last, heads 1, 2`: every field but defaults; arrays by a short digest."""
        parts = [self.where]
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value = digest_of(value.astype(np.float64).tolist())[:8]
            if each.name not in _IN_WHERE and value != each.default:
                parts.append(f"{each.name} {', '.join(map(str, value)) if isinstance(value, tuple) else value}")
        return ", ".join(parts)

    def layers(self, info: ModelInfo) -> tuple[int, ...]:
        """The layers (depths, for the residual stream) from 0; `UsageError` for unknown ones."""
        what, count = ("depths", info.n_layers + 1) if self.place == "resid" else ("layers", info.n_layers)
        return from_0(self.where, self._listed or range(count), count, f"{info.name} has the {what}")

    def refuse_misfit(self, info: ModelInfo) -> None:
        """Raise `UsageError` where this edit names what the model does not have."""
        layers = self.layers(info)
        if self.place not in ("resid", "block", "mlp_out"):
            info.refuse_without_attention(self.where, layers)

    def to_json(self) -> dict[str, Any]:
        """The edit as plain values: `edit_from_json` gives it back."""
        return {"kind": self.kind} | {f.name: as_plain(getattr(self, f.name)) for f in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kind, self.layer, self.dose, self.at))

    def _refused(self, found: str, fix: str) -> UsageError:
        return UsageError(asked=self.where, found=found, fix=fix)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SubspaceEdit(Edit):
    """An edit of one site inside the subspace that `axis` spans: `interp.RemoveAxis` explains the fields."""

    site: str = "v"
    head: int | None = None
    axis: np.ndarray
    metric: Metric = "raw"
    sigma: np.ndarray | None = None
    displacement: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.site not in SITES:
            is_mixed = self.site in AFTER_W_O
            raise UsageError(
                asked=f"{self.kind} {self.site}",
                found="after the output projection every feature mixes all heads: no slice of it belongs to one head"
                if is_mixed
                else "this site cannot be edited",
                fix="Edit z, the head outputs before it." if is_mixed else f"Choose among {', '.join(SITES)}.",
            )
        super().__post_init__()
        if self.head is not None and self.site == "resid":
            raise self._refused(
                "the residual stream has no heads", "Leave out the head, or edit z before W_O mixes them."
            )
        refuse_array(self, "axis", self.axis, (1, 2))
        given = [name for name in ("sigma", "displacement") if getattr(self, name) is not None]
        if len(given) != (self.metric == "z-scored"):
            raise self._refused(
                f"the metric is {self.metric} and {' and '.join(given) or 'neither sigma nor displacement'} is given",
                "z-scored takes one of sigma and displacement; raw takes neither.",
            )
        for name in given:
            refuse_array(self, name, getattr(self, name), (1, 2))
        if self.sigma is not None and (self.sigma.shape != self.axis.shape[-1:] or (self.sigma < 0).any()):
            raise self._refused(
                f"sigma has the shape {self.sigma.shape}", "Give one deviation, not below 0, for every feature."
            )
        if self.displacement is not None and self.displacement.shape != self.axis.shape:
            raise self._refused(
                f"the axis has the shape {self.axis.shape}, its displacement {self.displacement.shape}",
                "Give both the same shape.",
            )
        inner = self._inner()
        if not np.isfinite(inner).all():
            raise self._refused("the axis is too long to be computed with", "Give it a length near 1.")
        if len(inner) > self.axis.shape[-1] or np.linalg.cond(inner) > 1e10:
            raise self._refused(
                f"the {len(inner)} axes do not span {len(inner)} dimensions"
                if len(inner) > 1
                else "the axis is zero, or its displacement does not change its coordinate",
                "Leave out axes that are zero or combinations of others.",
            )

    @property
    def place(self) -> str:
        return self.site

    @property
    def n_axes(self) -> int:
        return len(np.atleast_2d(self.axis))

    @property
    def covectors(self) -> Float[np.ndarray, "axis feature"]:
        """a, which reads the coordinates from raw activations. A column with σ = 0 was not scaled."""
        axis = np.atleast_2d(np.asarray(self.axis, dtype=np.float64))
        return axis if self.sigma is None else axis / np.where(self.sigma > 0, self.sigma, 1.0)

    @property
    def displacements(self) -> Float[np.ndarray, "axis feature"]:
        """d: how raw activations move with each coordinate, a_i·d_j = δ_ij."""
        return np.linalg.solve(self._inner().T, self._moves())

    def _moves(self) -> np.ndarray:
        if self.displacement is not None:
            return np.atleast_2d(np.asarray(self.displacement, dtype=np.float64))
        axis = np.atleast_2d(np.asarray(self.axis, dtype=np.float64))
        return axis if self.sigma is None else axis * np.where(self.sigma > 0, self.sigma, 1.0)

    def _inner(self) -> np.ndarray:
        """Inner products of covectors and moves; their lengths cancel."""
        with np.errstate(over="ignore", invalid="ignore"):  # such large numbers are rejected later
            return self.covectors @ self._moves().T

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        n_features, words = width_of(self, self.site, self.head, info)
        if self.axis.shape[-1] != n_features:
            raise self._refused(f"the axis has {self.axis.shape[-1]} features, {words}", "Fit the axis on this site.")


MOST_DOSE = 1e6
"""Largest dose of an edit either way: beyond it activations leave what float32 can hold."""


def width_of(edit: Edit, site: str, head: int | None, info: ModelInfo) -> tuple[int, str]:
    """How many features the edited tensor has, and the words for it; an unknown head is a `UsageError`."""
    if site == "resid":
        return info.d_model, f"the residual stream of {info.name} has {info.d_model}"
    grouped = site in ("k", "v")
    count = info.n_kv_heads if grouped else info.n_heads
    kind = "KV heads" if grouped else "heads"
    owned = f"{site} of {info.name} has {count} {kind} of {info.d_head} features"
    if head is not None and not 0 <= head < count:
        fix = f"Name a head from 0 to {count - 1}."
        if grouped and 0 <= head < info.n_heads:
            fix += f" Each serves {info.n_heads // count} query heads, which are separate in q and z."
        raise edit._refused(f"there is no head {head}: {owned}", fix)
    return (count * info.d_head, f"{owned}, {count * info.d_head} in all") if head is None else (info.d_head, owned)


def refuse_array(edit: Edit, name: str, array: np.ndarray, n_dimensions: tuple[int, ...]) -> None:
    if array.ndim not in n_dimensions or array.size == 0:
        raise edit._refused(
            f"{name} has the shape {array.shape}", f"It has {' or '.join(map(str, n_dimensions))} axes."
        )
    if not np.isfinite(array).all():
        raise edit._refused(f"{name} is not finite", "Look where NaN or infinity came from.")


def as_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
