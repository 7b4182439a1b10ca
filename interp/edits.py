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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from interp.capture import ModelInfo
from interp.edit import KINDS as KINDS
from interp.edit import Edit, SubspaceEdit, refuse_array, width_of

_ORTHOGONAL = 1e-5
"""How far R Rᵀ may be from the identity."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RemoveAxis(SubspaceEdit, kind="remove"):
    """Remove a subspace: its coordinates become 0.

    `axis` `[feature]` or `[axis, feature]` spans it. Features are those of `site` (`q`, `k`, `v`, `z`, `resid`), all
    heads end to end, or of one `head` (a KV head for k and v). For an axis fitted on standardised features, `metric` is
    `z-scored`, with `sigma` `[feature]`, their standard deviations, or `displacement`, how activations move with each
    coordinate, in the shape of `axis`. Raises `UsageError` where these do not fit.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.RemoveAxis(layer=-1, head=0, axis=axis)
    >>> values = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> bool(abs(values @ axis).max() < 1e-6)
    True
    """


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KeepAxis(SubspaceEdit, kind="keep"):
    """Keep nothing but a subspace, whose fields `RemoveAxis` explains. With a `head`, other heads stay as they are.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.KeepAxis(layer=-1, head=0, axis=axis)
    >>> kept = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> float(abs(kept[:, 1:]).max())
    0.0
    """


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ShiftAxis(SubspaceEdit, kind="shift"):
    """Move one coordinate x·a by `deviations` times `score_sigma`, its standard deviation; `RemoveAxis` has the fields.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> sigma = float((interp.collect(model, prompts, ["v"])[interp.Need("v")][-1, :, 0] @ axis).std())
    >>> edit = interp.ShiftAxis(layer=-1, head=0, axis=axis, deviations=2.0, score_sigma=sigma)
    >>> capture = interp.collect(model, prompts, ["v"], edits=[edit])
    """

    deviations: float
    score_sigma: float

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
class RotateAxes(SubspaceEdit, kind="rotate"):
    """Rotate the coordinates c of a subspace by an orthogonal `rotation` R `[axis, axis]`: c becomes R c.

    `RemoveAxis` explains the other fields. For a whole site or head, let `axis` be the identity matrix.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> edit = interp.RotateAxes(layer=-1, head=0, axis=np.eye(model.info.d_head)[:2], rotation=quarter)
    >>> capture = interp.collect(model, prompts, ["v"], edits=[edit])
    """

    rotation: np.ndarray

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_array(self, "rotation", self.rotation, (2,))
        r = np.asarray(self.rotation, dtype=np.float64)
        if r.shape != (self.n_axes, self.n_axes):
            raise self._refused(f"the rotation has the shape {r.shape} for {self.n_axes} axes", "Make it square.")
        with np.errstate(over="ignore", invalid="ignore"):  # of entries near the largest float
            off = float(np.abs(r @ r.T - np.eye(len(r))).max())
        if not off <= _ORTHOGONAL:
            raise self._refused(f"the rotation is not orthogonal: R Rᵀ is off by {off:.1e}", "Take R from a QR.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReplaceCoordinates(SubspaceEdit, kind="replace"):
    """Replace the coordinates by `values`: `[axis]` everywhere, or `[row, axis]`, one row for each edited position.

    Rows go prompt by prompt, then by position, as in a `Capture`. For an interchange intervention (Geiger et al. 2021,
    arXiv 2106.02997) give the coordinates of a source prompt. `RemoveAxis` explains the other fields.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> axis = np.eye(model.info.d_head)[0]
    >>> edit = interp.ReplaceCoordinates(layer=-1, head=0, axis=axis, values=np.array([2.0]))
    >>> values = interp.collect(model, prompts, ["v"], edits=[edit])[interp.Need("v")][-1, :, 0]
    >>> bool(abs(values @ axis - 2.0).max() < 1e-5)
    True
    """

    values: np.ndarray

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_array(self, "values", self.values, (1, 2))
        if self.values.shape[-1] != self.n_axes:
            raise self._refused(
                f"the values have {self.values.shape[-1]} columns for {self.n_axes} axes",
                "Give one value for every axis.",
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AblateHeads(Edit, kind="ablate"):
    """Replace the outputs of query `heads` (from 0), before W_O, `by` zero, their mean, or another prompt's outputs.

    The mean is over the edited positions in the unedited model, unless `mean` `[head, d_head]` gives it, in the order
    of `heads`. Resampling takes the unedited output at the same position of another prompt: the same one for all heads
    and layers, drawn with `seed` among those at least as long. For the longest prompt it is one of the next longest;
    past its end, outputs of its other positions are drawn.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> edit = interp.AblateHeads(layer=0, heads=(1, 2), by="mean")
    >>> capture = interp.collect(model, prompts, ["attn_out"], edits=[edit])
    """

    heads: int | tuple[int, ...] = field(kw_only=False)
    by: Literal["zero", "mean", "resample"] = "zero"
    seed: int = 0
    mean: np.ndarray | None = None

    @property
    def each_head(self) -> tuple[int, ...]:
        """The heads, as a tuple."""
        return (self.heads,) if isinstance(self.heads, int) else self.heads

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.each_head or len(set(self.each_head)) < len(self.each_head):
            raise self._refused(f"the heads are {list(self.each_head)}", "Name one or several heads, each once.")
        if self.mean is not None:
            refuse_array(self, "mean", self.mean, (2,))
            if self.by != "mean" or len(self.mean) != len(self.each_head):
                raise self._refused(
                    f"by = {self.by!r} with means of {len(self.mean)} heads", "Give means with by='mean', one a head."
                )

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        for head in self.each_head:
            width_of(self, "z", head, info)
        if self.mean is not None and self.mean.shape[1] != info.d_head:
            raise self._refused(f"the means have {self.mean.shape[1]} features", f"A head has {info.d_head}.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BypassLayer(Edit, kind="bypass", part="block"):
    """Let the residual stream pass a layer unchanged.

    With `lens=True`, name all layers from one to the last: the model's lens (`interp.FittedLens.on`) then maps the
    residual stream before them to the final depth. A model without a lens uses the logit lens, as with `lens=False`.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["resid"], edits=[interp.BypassLayer(layer=1)])
    >>> before, after = capture[interp.Need("resid")][1:3]
    >>> bool((before == after).all())
    True
    """

    lens: bool = False

    def refuse_misfit(self, info: ModelInfo) -> None:
        super().refuse_misfit(info)
        bypassed = sorted(self.layers(info))
        if self.lens and bypassed != list(range(bypassed[0], info.n_layers)):
            raise self._refused(f"the layers are {bypassed}", f"A lens reads past all from one to {info.n_layers - 1}.")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionOff(Edit, kind="attention-off", part="attn_out"):
    """Add nothing of a layer's attention to the residual stream, not even its biases.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["attn_out"], edits=[interp.AttentionOff(layer=1)])
    >>> float(abs(capture[interp.Need("attn_out")][1]).max())
    0.0
    """


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FeedForwardOff(Edit, kind="feed-forward-off", part="mlp_out"):
    """Add nothing of a layer's feed-forward block to the residual stream, not even its biases.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["mlp_out"], edits=[interp.FeedForwardOff(layer=0)])
    >>> float(abs(capture[interp.Need("mlp_out")][0]).max())
    0.0
    """


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PatternsOf(Edit, kind="patterns", part="qk", is_whole=True):
    """Attend as another model of the same shape does: its queries and keys on the same tokens replace the model's own.

    The `donor` (another step, seed or fine-tuning) runs by itself on the same input; values, and all that is computed
    from them, stay the model's own. It is a loaded model or, for a run and in a file of edits, the name or folder of
    one: `tunnel:bijection-gpt-neox@256`. Without a `layer` all layers are edited. A `dose` from 0 to 1 moves queries
    and keys part of the way. Applying it to a model of another shape raises `UsageError`.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> edit = interp.PatternsOf(donor="tunnel:bijection-gpt-neox@256")
    >>> capture = interp.collect(model, prompts, ["pattern_entropy"], edits=[edit])
    """

    layer: int | tuple[int, ...] = field(default=(), kw_only=False)
    donor: Any

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
        """The name that loads the donor; empty if the donor is no model."""
        name = self.donor if isinstance(self.donor, str) else getattr(self.donor, "name", "")
        return name if isinstance(name, str) else ""

    @property
    def where(self) -> str:
        return f"{super().where} from {self.donor_name}"

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"donor": self.donor_name}


Edits = Edit | Mapping[str, Any] | Iterable[Edit | Mapping[str, Any]] | str | Path
"""One edit or several, as objects or plain values, or the file that holds them."""
