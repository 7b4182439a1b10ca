"""Edits as tensor operations: one step per edit and layer, for several variants of the edit at once.

Variants differ in numbers alone (axes, doses, heads); their rows follow one another in a batch. Steps take and return
`[variant, prompt, pos, feature]`, heads concatenated; numbers are `[variant, ...]`. The edited tensor at dose 1 is as
interp.edits defines it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from interp.capture import ModelInfo
from interp.edit import Edit, SubspaceEdit
from interp.edits import AblateHeads, KeepAxis, PatternsOf, ReplaceCoordinates, RotateAxes, ShiftAxis

Numbers = Mapping[str, np.ndarray]


def signature(edit: Edit, info: ModelInfo) -> tuple[object, ...]:
    """A key that is equal for two edits if they can be variants of one step: everything but the numbers."""
    shapes = tuple((name, value.shape) for name, value in numbers(edit, info).items())
    settings = [getattr(edit, name, None) for name in ("by", "lens")]
    donor = id(edit.donor) if isinstance(edit, PatternsOf) else None
    return (edit.kind, edit.place, edit.layers(info), edit.at, *settings, donor, shapes)


def numbers(edit: Edit, info: ModelInfo) -> Numbers:
    """The numbers of an edit, by name, in the space of all heads of its site."""
    found: dict[str, np.ndarray] = {"dose": np.array(edit.dose)}
    if isinstance(edit, SubspaceEdit):
        found |= {
            "covectors": _in_all_heads(edit, edit.covectors, info),
            "displacements": _in_all_heads(edit, edit.displacements, info),
        }
    if isinstance(edit, KeepAxis):
        found["kept"] = 1.0 - _in_all_heads(edit, np.ones((1, edit.axis.shape[-1])), info)
    if isinstance(edit, ShiftAxis):
        found["shift"] = np.array([[edit.deviations * edit.score_sigma]])
    if isinstance(edit, RotateAxes):
        found["rotation"] = np.asarray(edit.rotation, dtype=np.float64)
    if isinstance(edit, ReplaceCoordinates):
        found["values"] = np.asarray(edit.values, dtype=np.float64)
    if isinstance(edit, AblateHeads):
        is_ablated = np.zeros((info.n_heads, info.d_head))
        is_ablated[list(edit.each_head)] = 1.0
        found["ablated"] = is_ablated.reshape(1, -1)
        if edit.mean is not None:
            mean = np.zeros_like(is_ablated)
            mean[list(edit.each_head)] = edit.mean
            found["mean"] = mean.reshape(1, -1)
        if edit.by == "resample":
            found["seed"] = np.array(edit.seed)
    return found


def _in_all_heads(edit: SubspaceEdit, vectors: np.ndarray, info: ModelInfo) -> np.ndarray:
    """Vectors of one head's space with zeros for the other heads; those of all heads as they are."""
    if edit.head is None:
        return vectors
    count = info.n_kv_heads if edit.site in ("k", "v") else info.n_heads
    whole = np.zeros((len(vectors), count, info.d_head))
    whole[:, edit.head] = vectors
    return whole.reshape(len(vectors), -1)


@dataclass(frozen=True)
class EditedRows:
    """The rows of a batch that an edit acts on: `mask` `[prompt, pos]`, and the `number` of each among all edited."""

    mask: torch.Tensor
    number: torch.Tensor

    def to(self, device: torch.device) -> "EditedRows":
        return self if self.mask.device == device else EditedRows(self.mask.to(device), self.number.to(device))


@dataclass(frozen=True)
class EditStep:
    """One edit at one layer. `numbers` are float64, `[variant, 1 or row, feature]`; `dose` `[variant]`.

    `others` are tensors to put in place: head outputs of the unedited model (`HeadOutputs`) for ablations by mean and
    resampling, queries or keys of a donor (`donor_patterns`), or the stream before a bypassed layer.
    """

    index: int
    edit: Edit
    place: str
    layer: int
    dose: torch.Tensor
    numbers: Mapping[str, torch.Tensor]

    def edited(self, x: torch.Tensor, rows: EditedRows, others: torch.Tensor | None) -> torch.Tensor:
        """The edited tensor at dose 1, for `x` `[variant, prompt, pos, feature]` in float32 or better."""
        n = {name: value.to(x) for name, value in self.numbers.items()}
        flat = x.flatten(1, 2)  # [variant, row, feature]
        if "ablated" in n:
            put = n.get("mean", others)
            return torch.where(n["ablated"].bool(), 0.0 if put is None else put.to(flat), flat).view(x.shape)
        if "covectors" not in n:  # the tensor is replaced, or removed
            return torch.zeros_like(x) if others is None else others.to(x).view(x.shape)
        c = flat @ n["covectors"].mT  # [variant, row, axis]
        match self.edit.kind:
            case "remove":
                by = -c
            case "shift":
                by = n["shift"]
            case "rotate":
                by = c @ n["rotation"].mT - c
            case "replace":
                values = n["values"]
                by = (values[:, None] if values.ndim == 2 else values[:, rows.number.flatten()]) - c
            case _:  # keep
                return (flat * n["kept"] + c @ n["displacements"]).view(x.shape)
        return (flat + by @ n["displacements"]).view(x.shape)

    def apply(self, x: torch.Tensor, rows: EditedRows, others: torch.Tensor | None = None) -> torch.Tensor:
        """`x` with the dose of the edit at its rows; everywhere else, and at dose 0, the same bits."""
        precise = x if x.dtype == torch.float64 else x.float()
        new = self.edited(precise, rows, others)
        dose = self.dose.to(precise)[:, None, None, None]
        active = rows.mask[None, :, :, None] & (dose != 0)  # [variant, prompt, pos, 1]
        return torch.where(active, torch.lerp(precise, new, dose).to(x.dtype), x)


@dataclass(frozen=True)
class SeenStep:
    """One step as applied: the tensor before and after it, `[variant, prompt, pos, feature]`."""

    step: EditStep
    before: torch.Tensor
    after: torch.Tensor
    rows: EditedRows
    others: torch.Tensor | None


def make_steps(variants: Sequence[Sequence[Edit]], info: ModelInfo) -> list[EditStep]:
    """The steps of edits that compose, in order, for variants of one signature `[variant][edit]`."""
    steps = []
    for index, of_edit in enumerate(zip(*variants, strict=True)):
        first = of_edit[0]
        found = [numbers(edit, info) for edit in of_edit]
        stacked = {name: torch.from_numpy(np.stack([f[name] for f in found])) for name in found[0]}
        dose = stacked.pop("dose")
        places = ("q", "k") if isinstance(first, PatternsOf) else (first.place,)
        layers = first.layers(info)
        steps += [EditStep(index, first, place, layer, dose, stacked) for layer in layers for place in places]
    return steps
