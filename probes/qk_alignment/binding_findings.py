"""The finding of binding: at which layer the keys at value positions carry the token bound to them."""

import numpy as np

from interp.capture import Capture
from interp.findings import Interval, Scalar
from interp.statistics.estimate import mean_and_band, null_from_permutations
from interp.statistics.units import FEW_UNITS
from interp.table import Table, number_columns

from ..measures.profiles import Part
from .binding import Binding, BoundKeys, bound_keys, measure_binding

_RENAMED = "bound tokens renamed at random in every sequence"
_UNITS = {"layer": "layer", "binding": "1", "binding_cosine": "1", "mass_on_bound_token": "fraction"}


def binding_findings(capture: Capture, n_permutations: int, rng: np.random.Generator) -> Part:
    """η² and |cos| at the layer where the bound token explains most, and both by layer."""
    bound = bound_keys(capture)
    if isinstance(bound, str):
        return Part(notes=(f"binding is undefined: {bound}.",))
    binding = measure_binding(bound, n_permutations, rng)
    note = (
        f"Binding is measured at {len(bound.bound)} value positions of {bound.n_sequences} sequences, keys before "
        "rotary embedding, all heads of a layer together."
    )
    return Part(_scalars(bound, binding), {"binding": _table(bound, binding)}, (note,))


def _scalars(bound: BoundKeys, binding: Binding) -> dict[str, Scalar]:
    layer = int(np.nanargmax(binding.explained))
    method = f"jackknife over {binding.n_groups} groups of sequences, logit scale"
    counted = {"n": bound.n_sequences, "n_unit": "sequence", "underpowered": bound.n_sequences < FEW_UNITS}
    return {
        "binding": Scalar.of(
            binding.explained[layer], "1",
            Interval.of(binding.interval[layer], method, "the bound token explains all or nothing"),
            null_from_permutations(f"{_RENAMED}, the best layer each time", binding.permuted.max(axis=1)),
            p=binding.p[layer], p_over="layers",
            meaning="share of the variance of keys at value positions that the key token just before explains, at the "
            f"layer where it is largest ({layer})", **counted,
        ),
        "binding_cosine": Scalar.of(
            binding.cosine[layer], "1", "an average over pairs of group means: see binding",
            null_from_permutations(_RENAMED, binding.permuted_cosine[:, layer]),
            meaning=f"mean |cos| between the mean keys of different bound tokens, layer {layer}; random vectors of "
            f"{bound.keys.shape[2]} dimensions have {bound.random_cosine:.3f}", **counted,
        ),
    }  # fmt: skip


def _table(bound: BoundKeys, binding: Binding) -> Table:
    columns = {
        "layer": np.arange(len(binding.explained)),
        **number_columns("binding", binding.explained, binding.interval.T, mean_and_band(binding.permuted), binding.p),
        **number_columns("binding_cosine", binding.cosine, null=mean_and_band(binding.permuted_cosine)),
        "mass_on_bound_token": bound.mass_before.mean(axis=1).max(axis=1),
    }
    caption = (
        "Share of key variance at value positions explained by the bound token, |cos| between the mean keys of bound "
        f"tokens (random vectors: {bound.random_cosine:.3f}), and the largest head's attention on the bound token."
    )
    return Table(columns, _UNITS, caption)
