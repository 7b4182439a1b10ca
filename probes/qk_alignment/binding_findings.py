"""The finding of binding: at which layer the keys at value positions carry the token bound to them."""

import numpy as np

from interp.capture import Capture
from interp.findings import Scalar
from interp.statistics.estimates import Estimates
from interp.statistics.units import FEW_UNITS
from interp.table import Table

from ..measures.profiles import Part
from .binding import Binding, BoundKeys, bound_keys, measure_binding
from .quantities import QUANTITIES


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
    at = [int(np.nanargmax(binding.explained))]
    about = {"n": bound.n_sequences, "n_unit": "sequence", "underpowered": bound.n_sequences < FEW_UNITS}
    words = {"layer": str(at[0]), "n_groups": str(binding.n_groups), "width": str(bound.keys.shape[2]),
             "random": f"{bound.random_cosine:.3f}"}  # fmt: skip
    largest = Estimates(binding.explained[at], binding.interval[at].T, about=about, words=words)
    cosine = Estimates(binding.cosine[at], about=about, words=words)
    return QUANTITIES.scalars({
        "binding": largest.exchanged(binding.permuted.max(axis=1)[:, None], binding.p[at]),
        "binding_cosine": cosine.exchanged(binding.permuted_cosine[:, at], asks="nothing"),
    })  # fmt: skip


def _table(bound: BoundKeys, binding: Binding) -> Table:
    columns = {
        "layer": np.arange(len(binding.explained)),
        "binding": Estimates(binding.explained, binding.interval.T).exchanged(binding.permuted, binding.p),
        "binding_cosine": Estimates(binding.cosine).exchanged(binding.permuted_cosine, asks="nothing"),
        "mass_on_bound_token": bound.mass_before.mean(axis=1).max(axis=1),
    }
    caption = (
        "Share of key variance at value positions explained by the previous token, |cos| between the mean keys after "
        f"different tokens (random vectors: {bound.random_cosine:.3f}), and the largest attention of a head on it."
    )
    return QUANTITIES.table(columns, caption)
