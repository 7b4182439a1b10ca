"""Edits: what is changed inside a model while it runs, as frozen descriptions that can be written to a file.

An edit names a site, layers, positions and a dose; interp.editing carries it out. Sites are `q`, `k`, `v` (after rotary
embedding; keys and values per KV head), `z` (outputs of the query heads, before W_O) and `resid` (the residual stream,
whose layers are depths 0 .. n_layers). With x the heads of a site laid end to end, or one head's part of it, a
subspace is spanned by covectors a_i, which read its coordinates c_i = x·a_i, and displacements d_i with a_i·d_j = δ_ij,
along which x moves when a coordinate does:

    remove    x − Σ c_i d_i           rotate    x + Σ (R c − c)_i d_i
    keep      Σ c_i d_i               replace   x + Σ (b − c)_i d_i
    shift     x + s σ_c d

`metric` says how the two belong together. `raw`: d spans what a spans, and removal is the orthogonal projection.
`z-scored`: the axis was fitted on standardised columns. A direction w there reads c = x·(w/σ) and moves x by σ∘w:
two different vectors, and removal is an oblique projection. Give `sigma` with w itself, or `displacement` where
`axis` is the covector already, as the probe `value_axis` saves them. Lengths do not matter: d is scaled to the axis.

A `dose` t gives x + t (edited − x): 1 is the edit, 0 the unedited model bit for bit, −1 the opposite change.
Source: Paper III (arXiv 2512.23752), sections 4.5 and 4.6.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from interp.capture import ModelInfo
from interp.errors import UsageError
from interp.formatting import brief
from interp.system.calls import AnsweringType
from interp.system.plain_numbers import array, number, whole_number, whole_numbers

Metric = Literal["raw", "z-scored"]
SITES = ("q", "k", "v", "z", "resid")
AFTER_W_O = frozenset({"attn_out", "o_proj", "out", "attention_output"})

_ORTHOGONAL = 1e-5
"""How far R Rᵀ may be from the identity."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Edit(metaclass=AnsweringType):
    """What all edits have: `layer` one or several (negative ones count from the end), a `dose`, and positions.

    `at` is `all`, `last`, `scored`, a column of the prompt set, or positions counted from 0. Numbers and arrays may be
    those of numpy, pandas or torch.

    >>> interp.AttentionOff(layer=(0, 2), dose=0.5, at="last").dose
    0.5
    """

    layer: int | tuple[int, ...] = field(kw_only=False)
    dose: float = 1.0
    at: str | tuple[int, ...] = "all"

    kind: ClassVar[str]
    part: ClassVar[str] = "z"
    is_whole: ClassVar[bool] = False
    """Whether an edit that names no layer acts in all of them."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in NUMBERS and not (value is None and each.default is None):
                object.__setattr__(self, each.name, read_numbers(f"{self.kind}: {each.name}", each.name, value))
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
        """The site that is edited, or the part of a layer."""
        return self.part

    @property
    def _listed(self) -> tuple[int, ...]:
        return (self.layer,) if isinstance(self.layer, int) else tuple(self.layer)

    def __repr__(self) -> str:
        return brief(self)

    def __str__(self) -> str:
        where = f"layer {', '.join(map(str, self._listed))}" if self._listed else "all layers"
        return f"{self.kind} {self.place} at {where}"

    def layers(self, info: ModelInfo) -> tuple[int, ...]:
        """The layers counted from 0 (depths, for the residual stream); an unknown one is a `UsageError`."""
        count = info.n_layers + (self.place == "resid")
        listed = self._listed or tuple(range(count))
        unknown = [layer for layer in listed if not -count <= layer < count]
        if unknown:
            what = "depths" if self.place == "resid" else "layers"
            raise self._refused(
                f"{info.name} has the {what} 0 to {count - 1}", f"Leave out {unknown[0]}; −1 is the last."
            )
        resolved = tuple(layer % count for layer in listed)
        if len(set(resolved)) < len(resolved):
            raise self._refused("a layer is named twice", "Name each layer once, from the front or from the end.")
        return resolved

    def refuse_misfit(self, info: ModelInfo) -> None:
        """Raise `UsageError` where this edit names what the model does not have."""
        layers, having = self.layers(info), info.layers_with_attention
        without = [layer for layer in layers if layer not in having]
        if info.n_heads and self.place not in ("resid", "block", "mlp_out") and without:
            raise self._refused(
                f"layer {', '.join(map(str, without))} of {info.name} has no attention",
                f"Layers with attention: {', '.join(map(str, having))}. Edit resid or bypass the layer elsewhere.",
            )

    def to_json(self) -> dict[str, Any]:
        """The edit as plain values: `edit_from_json` gives it back."""
        return {"kind": self.kind} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kind, self.layer, self.dose, self.at))

    def _refused(self, found: str, fix: str) -> UsageError:
        return UsageError(asked=str(self), found=found, fix=fix)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SubspaceEdit(Edit):
    """An edit of one site inside the subspace that `axis` `[feature]` or `[axis, feature]` spans.

    Features are all heads of the site laid end to end, or those of one `head` (a KV head for k and v, a query head for
    q and z). See the module for `metric`, `sigma` `[feature]` and `displacement`, which has the shape of `axis`.
    """

    site: str = "v"
    head: int | None = None
    axis: np.ndarray
    metric: Metric = "raw"
    sigma: np.ndarray | None = None
    displacement: np.ndarray | None = None

    def __post_init__(self) -> None:
        _refuse_site(self.site, self)
        super().__post_init__()
        if self.head is not None and self.site == "resid":
            raise self._refused(
                "the residual stream has no heads", "Leave out the head, or edit z before W_O mixes them."
            )
        _refuse_array(self, "axis", self.axis, (1, 2))
        given = [name for name in ("sigma", "displacement") if getattr(self, name) is not None]
        if len(given) != (self.metric == "z-scored"):
            raise self._refused(
                f"the metric is {self.metric} and {' and '.join(given) or 'neither sigma nor displacement'} is given",
                "z-scored takes one of sigma and displacement; raw takes neither.",
            )
        for name in given:
            _refuse_array(self, name, getattr(self, name), (1, 2))
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
        """a: what reads the coordinates off raw activations. A column with σ = 0 was left as it is when scaled."""
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
        """Inner products of covectors and moves, of order one whatever their lengths."""
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that large are refused as they stand
            return self.covectors @ self._moves().T

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        n_features, words = _width(self, self.site, self.head, info)
        if self.axis.shape[-1] != n_features:
            raise self._refused(f"the axis has {self.axis.shape[-1]} features, {words}", "Fit the axis on this site.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RemoveAxis(SubspaceEdit):
    """Take a subspace out: its coordinates become 0.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.RemoveAxis(layer=-1, head=0, axis=axis)
    >>> values = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> bool(abs(values @ axis).max() < 1e-6)
    True
    """

    kind: ClassVar[str] = "remove"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KeepAxis(SubspaceEdit):
    """Keep nothing but a subspace (of one head, the other heads stay as they are).

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.KeepAxis(layer=-1, head=0, axis=axis)
    >>> kept = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> float(abs(kept[:, 1:]).max())
    0.0
    """

    kind: ClassVar[str] = "keep"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ShiftAxis(SubspaceEdit):
    """Move one coordinate by `deviations` times `score_sigma`, the standard deviation of that coordinate x·a.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> sigma = float((interp.collect(model, prompts, ["v"])[interp.Need("v")][-1, :, 0] @ axis).std())
    >>> edit = interp.ShiftAxis(layer=-1, head=0, axis=axis, deviations=2.0, score_sigma=sigma)
    >>> capture = interp.collect(model, prompts, ["v"], edits=[edit])
    """

    deviations: float
    score_sigma: float

    kind: ClassVar[str] = "shift"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_axes != 1:
            raise self._refused(f"there are {self.n_axes} axes", "Shift along one axis at a time; edits compose.")
        if not np.isfinite(self.deviations) or not np.isfinite(self.score_sigma) or self.score_sigma < 0:
            raise self._refused(
                f"the shift is {self.deviations} times {self.score_sigma}",
                "Both are finite, the deviation not below 0.",
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RotateAxes(SubspaceEdit):
    """Turn the coordinates of a subspace by an orthogonal `rotation` `[axis, axis]`: c becomes R c.

    Of a whole site (or head) the axes are the identity matrix.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> edit = interp.RotateAxes(layer=-1, head=0, axis=np.eye(model.info.d_head)[:2], rotation=quarter)
    >>> capture = interp.collect(model, prompts, ["v"], edits=[edit])
    """

    rotation: np.ndarray

    kind: ClassVar[str] = "rotate"

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_array(self, "rotation", self.rotation, (2,))
        r = np.asarray(self.rotation, dtype=np.float64)
        if r.shape != (self.n_axes, self.n_axes):
            raise self._refused(f"the rotation has the shape {r.shape} for {self.n_axes} axes", "Make it square.")
        with np.errstate(over="ignore", invalid="ignore"):  # of entries near the largest float
            off = float(np.abs(r @ r.T - np.eye(len(r))).max())
        if not off <= _ORTHOGONAL:
            raise self._refused(f"the rotation is not orthogonal: R Rᵀ is off by {off:.1e}", "Take R from a QR.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReplaceCoordinates(SubspaceEdit):
    """Put `values` in place of the coordinates: `[axis]` everywhere, or `[row, axis]`, one row for each edited one.

    Rows follow the prompts that are run, then their positions, as the rows of a `Capture` do: an interchange
    intervention puts there what a donor has (Geiger et al. 2021, arXiv 2106.02997).

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.ReplaceCoordinates(layer=-1, head=0, axis=axis, values=np.array([2.0]))
    >>> values = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> bool(abs(values @ axis - 2.0).max() < 1e-5)
    True
    """

    values: np.ndarray

    kind: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_array(self, "values", self.values, (1, 2))
        if self.values.shape[-1] != self.n_axes:
            raise self._refused(
                f"the values have {self.values.shape[-1]} columns for {self.n_axes} axes",
                "Give one value for every axis.",
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AblateHeads(Edit):
    """Replace the outputs of query heads, before W_O, by zero, by their mean, or by another prompt's.

    The mean is over the edited rows of the unedited model, unless `mean` `[head, d_head]` gives it, for the `heads` in
    their order. Resampling takes the unedited output of another prompt (the same one for all heads and layers, drawn
    with `seed` among those at least as long) at the same position. A prompt longer than all others has its donor among
    the longest of them; where that ends, outputs of other positions of the donor are drawn.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> edit = interp.AblateHeads(layer=0, heads=(1, 2), by="mean")
    >>> capture = interp.collect(model, prompts, ["attn_out"], edits=[edit])
    """

    heads: int | tuple[int, ...] = field(kw_only=False)
    by: Literal["zero", "mean", "resample"] = "zero"
    seed: int = 0
    mean: np.ndarray | None = None

    kind: ClassVar[str] = "ablate"

    @property
    def each_head(self) -> tuple[int, ...]:
        return (self.heads,) if isinstance(self.heads, int) else self.heads

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.each_head or len(set(self.each_head)) < len(self.each_head):
            raise self._refused(f"the heads are {list(self.each_head)}", "Name one or several heads, each once.")
        if self.by not in ("zero", "mean", "resample"):
            raise self._refused(f"by = {self.by!r}", "Heads are ablated by zero, mean or resample.")
        if self.mean is not None:
            _refuse_array(self, "mean", self.mean, (2,))
            if self.by != "mean" or len(self.mean) != len(self.each_head):
                raise self._refused(
                    f"by = {self.by!r} with means of {len(self.mean)} heads", "Give means with by='mean', one a head."
                )

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        for head in self.each_head:
            _width(self, "z", head, info)
        if self.mean is not None and self.mean.shape[1] != info.d_head:
            raise self._refused(f"the means have {self.mean.shape[1]} features", f"A head has {info.d_head}.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BypassLayer(Edit):
    """Let the residual stream pass a layer unchanged.

    With `lens` the layers are all from one on, and the lens of the model (`interp.FittedLens.on`) carries the stream
    that they are given to the output head; of a model without one this is the logit lens, as without `lens`.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["resid"], edits=[interp.BypassLayer(layer=1)])
    >>> before, after = capture[interp.Need("resid")][1:3]
    >>> bool((before == after).all())
    True
    """

    lens: bool = False

    kind: ClassVar[str] = "bypass"
    part: ClassVar[str] = "block"

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        bypassed = sorted(self.layers(info))
        if self.lens and bypassed != list(range(bypassed[0], info.n_layers)):
            raise self._refused(f"the layers are {bypassed}", f"A lens reads past all from one to {info.n_layers - 1}.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionOff(Edit):
    """Nothing of a layer's attention is added to the residual stream, biases included.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["attn_out"], edits=[interp.AttentionOff(layer=1)])
    >>> float(abs(capture[interp.Need("attn_out")][1]).max())
    0.0
    """

    kind: ClassVar[str] = "attention-off"
    part: ClassVar[str] = "attn_out"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FeedForwardOff(Edit):
    """Nothing of a layer's feed-forward block is added to the residual stream, biases included.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["mlp_out"], edits=[interp.FeedForwardOff(layer=0)])
    >>> float(abs(capture[interp.Need("mlp_out")][0]).max())
    0.0
    """

    kind: ClassVar[str] = "feed-forward-off"
    part: ClassVar[str] = "mlp_out"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PatternsOf(Edit):
    """Attend as another model of the same shape does: its queries and keys on the same tokens replace the model's own.

    The `donor` (another step, seed or fine-tuning) runs by itself on whatever the model is given; values, and all that
    is made of what was attended, stay the model's own. It is a loaded model, or for a run (and a file of edits) the
    name or folder of one: `tunnel:bijection-gpt-neox@256`. Without a `layer` the patterns of all layers are replaced.
    A `dose` between 0 and 1 takes queries and keys part of the way.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> edit = interp.PatternsOf(donor="tunnel:bijection-gpt-neox@256")
    >>> capture = interp.collect(model, prompts, ["pattern_entropy"], edits=[edit])
    """

    layer: int | tuple[int, ...] = field(default=(), kw_only=False)
    donor: Any

    kind: ClassVar[str] = "patterns"
    part: ClassVar[str] = "qk"
    is_whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.donor_name:
            raise self._refused(
                f"the donor is {self.donor!r}",
                "Give a model that interp.load returned, or for a run its name or folder.",
            )
        if self.at != "all":
            raise self._refused(
                f"the positions are {self.at!r}", "Keys serve all queries behind them: leave `at` out, which means all."
            )

    @property
    def donor_name(self) -> str:
        """The name that loads the donor; empty for what can be no model."""
        name = self.donor if isinstance(self.donor, str) else getattr(self.donor, "name", "")
        return name if isinstance(name, str) else ""

    def __str__(self) -> str:
        return f"{super().__str__()} from {self.donor_name}"

    def refuse_misfit(self, info: ModelInfo) -> None:
        if not info.n_heads:
            raise self._refused(
                f"{info.name} has no attention", "Edit resid, bypass a layer, or switch off a part of one."
            )
        super().refuse_misfit(info)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "layer": _plain(self.layer),
            "dose": self.dose,
            "at": self.at,
            "donor": self.donor_name,
        }


def _positions(value: Any) -> str | tuple[int, ...]:
    found = str(value) if isinstance(value, str) else whole_numbers(value)
    return (found,) if isinstance(found, int) else found


MOST_DOSE = 1e6
"""Largest dose of an edit either way: beyond it activations leave what float32 can hold."""

NUMBERS: Mapping[str, Callable[[Any], Any]] = {
    "layer": whole_numbers, "heads": whole_numbers, "head": whole_number, "seed": whole_number, "at": _positions,
    "dose": number, "deviations": number, "score_sigma": number,
    "axis": array, "sigma": array, "displacement": array, "rotation": array, "values": array, "mean": array,
}  # fmt: skip
"""The fields of edits that hold numbers, and how each is read."""

_TAKES: Mapping[Callable[[Any], Any], str] = {
    whole_number: "a whole number", whole_numbers: "whole numbers", number: "a number",
    _positions: "all, last, scored, a column, or positions counted from 0",
    array: "numbers in lists of equal length, or an array",
}  # fmt: skip


def read_numbers(what: str, field: str, value: Any) -> Any:
    """What a field of `NUMBERS` is given, as Python's numbers or an array of numpy; `UsageError` for `what` else."""
    try:
        return NUMBERS[field](value)
    except (TypeError, ValueError, OverflowError) as error:
        found, takes = f"{value!r:.60} does not fit: {error}", _TAKES[NUMBERS[field]]
        raise UsageError(asked=what, found=found, fix=f"This field takes {takes}.") from error


KINDS: Mapping[str, type[Edit]] = {
    cls.kind: cls
    for cls in (RemoveAxis, KeepAxis, ShiftAxis, RotateAxes, ReplaceCoordinates, AblateHeads, BypassLayer, AttentionOff,
                FeedForwardOff, PatternsOf)
}  # fmt: skip


def _refuse_site(site: str, edit: Edit) -> None:
    if site in AFTER_W_O:
        raise UsageError(
            asked=f"{edit.kind} {site}",
            found="after the output projection every feature mixes all heads: no slice of it belongs to one head",
            fix="Edit z, the head outputs before it.",
        )
    if site not in SITES:
        raise UsageError(
            asked=f"{edit.kind} {site}", found="this site cannot be edited", fix=f"Choose among {', '.join(SITES)}."
        )


def _width(edit: Edit, site: str, head: int | None, info: ModelInfo) -> tuple[int, str]:
    """How many features the edited tensor has, and the words for it; an unknown head is a `UsageError`."""
    if site == "resid":
        return info.d_model, f"the residual stream of {info.name} has {info.d_model}"
    grouped = site in ("k", "v")
    count = info.n_kv_heads if grouped else info.n_heads
    if not count:
        raise edit._refused(f"{info.name} has no attention", "Edit resid, bypass a layer, or switch off a part of one.")
    kind = "KV heads" if grouped else "heads"
    owned = f"{site} of {info.name} has {count} {kind} of {info.d_head} features"
    if head is not None and not 0 <= head < count:
        fix = f"Name a head from 0 to {count - 1}."
        if grouped and 0 <= head < info.n_heads:
            fix += f" Each serves {info.n_heads // count} query heads, which are separate in q and z."
        raise edit._refused(f"there is no head {head}: {owned}", fix)
    return (count * info.d_head, f"{owned}, {count * info.d_head} in all") if head is None else (info.d_head, owned)


def _refuse_array(edit: Edit, name: str, array: np.ndarray, n_dimensions: tuple[int, ...]) -> None:
    if array.ndim not in n_dimensions or array.size == 0:
        raise edit._refused(
            f"{name} has the shape {array.shape}", f"It has {' or '.join(map(str, n_dimensions))} axes."
        )
    if not np.isfinite(array).all():
        raise edit._refused(f"{name} is not finite", "Look where NaN or infinity came from.")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


Edits = Edit | Mapping[str, Any] | Iterable[Edit | Mapping[str, Any]] | str | Path
"""One edit or several, as objects or plain values, or the file that holds them."""
