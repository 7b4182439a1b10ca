"""Bug `layer-minus-one`: the published code edits layer −1 by default, and no layer has that number.

Its hooks compare the layer that was asked for with 0, 1, 2, …, so −1 is never met, nothing is edited, and the
run then shows how little the model suffered. Source: `apply_value` in `hf_activations.py`.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from interp.findings import Findings, Scalar
from interp.hooks.attention import Listener
from interp.hooks.pattern import AttentionCall
from interp.information import BITS_PER_NAT, kl_bits
from interp.need import Need
from interp.paper_code.side_by_side import Sample, Sides, Subject, compared, mean_over_prompts
from interp.paper_code.wrong_reads import REFERENCE_LAYER
from interp.statistics.spectra import principal_axes, scaled

N_AT_ONCE = 32
"""Prompts whose next-token distributions are held at a time: a vocabulary is long."""

_NO_NULL = "the size of an effect; matched controls for it are the causal probe's"
_NO_EDIT = "nothing was edited"


@dataclass
class AxisCut(Listener):
    """Takes one direction out of the values of one layer, heads concatenated, everywhere: v − (v·u) u."""

    layer: int
    axis: torch.Tensor

    def before(self, call: AttentionCall) -> None:
        if call.layer != self.layer:
            return
        u = self.axis.to(call.v)
        v = call.v.transpose(1, 2)
        flat = v.flatten(2)
        call.v = (flat - (flat @ u)[..., None] * u).view(v.shape).transpose(1, 2)


@dataclass(frozen=True)
class Change:
    """What an edit did to the next-token distribution of every row."""

    logit: Float[np.ndarray, " row"]
    kl_bits: Float[np.ndarray, " row"]


def measure(subject: Subject) -> Findings:
    """What removing PC1 of the last layer's values does to the next token, and what it does at layer −1."""
    base = subject.read(Need("v"))
    values = base[Need("v")][-1]
    axis = principal_axes(scaled(values.reshape(len(values), -1), "centred"), 1).directions[0]
    last = subject.model.info.n_layers - 1
    edits = (AxisCut(layer, torch.from_numpy(axis)) for layer in (last, REFERENCE_LAYER))
    right, wrong = (_edited(subject, edit) for edit in edits)
    sample = Sample.of(base, subject.rng(0))
    meaning = "How far the next-token distribution moves, on average."
    sides = [
        Sides("max_logit_change", "largest |Δ logit| of the next token",
              _largest(right.logit, sample, _NO_NULL), _largest(wrong.logit, sample, _NO_EDIT)),
        Sides("kl_bits", "mean KL(before || after) of the next token",
              mean_over_prompts(right.kl_bits, sample, _NO_NULL, unit="bits", meaning=meaning),
              mean_over_prompts(wrong.kl_bits, sample, _NO_EDIT, unit="bits", meaning=meaning)),
    ]  # fmt: skip
    notes = (
        f"Right: PC1 of the centred values is removed at layer {last}, at every position. Wrong: the same at "
        f"layer {REFERENCE_LAYER}, which is none of 0 to {last}.",
        "Logits are taken above their mean over the vocabulary: a constant added to all changes nothing.",
    )
    return compared("layer-minus-one", sides, notes, {})


def change(before: Float[np.ndarray, "row vocab"], after: Float[np.ndarray, "row vocab"]) -> Change:
    """Largest change of a logit above their mean, and KL(before || after), from log2 probabilities."""
    moved = (after - before) / BITS_PER_NAT
    moved = moved - moved.mean(axis=-1, keepdims=True)
    return Change(np.abs(moved).max(axis=-1), kl_bits(np.exp2(before), np.exp2(after)))


def _edited(subject: Subject, edit: AxisCut) -> Change:
    """Both passes, some prompts at a time."""
    need = Need("next_log_prob")
    found = []
    for start in range(0, len(subject.ids), N_AT_ONCE):
        part = slice(start, start + N_AT_ONCE)
        prompts = subject.prompts.take(range(len(subject.ids))[part])
        some = replace(subject, prompts=prompts, ids=subject.ids[part], progress=None)
        before, after = (some.read(need, listeners=heard)[need] for heard in ([], [edit]))
        found.append(change(before.astype(np.float64), after.astype(np.float64)))
    return Change(np.concatenate([c.logit for c in found]), np.concatenate([c.kl_bits for c in found]))


def _largest(logit: Float[np.ndarray, " row"], sample: Sample, null_reason: str) -> Scalar:
    return Scalar.of(
        float(logit.max()), "logits", f"the largest of all {sample.counted['n_unit']}s and tokens", null_reason,
        **sample.counted, meaning="The largest change of any logit above the mean of the vocabulary.",
    )  # fmt: skip
