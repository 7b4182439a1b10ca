"""Binding: do the keys at value positions say which key token the value belongs to?

A pair is a key token followed by a value token. At the value's position the key vector (before rotary embedding) of
layer 0 is a function of the value alone; one layer up it can hold the token before it, and then a later query for
that token finds its value by comparing queries with keys. Key vectors at value positions are grouped by the key
token just before:

    η² = Σ_g n_g |mean_g − mean|² / Σ_i |k_i − mean|²        all heads together, between 0 and 1

Null: the bound tokens of every sequence renamed at random, the same renaming for all layers. Pairs that come again in
a sequence stay equal, so that repeats do not pass for evidence: in 200 simulations whose keys hold the value alone,
renaming called 4 % bound at the 5 % level, and exchanging the tokens between sequences 94 %. |cos| between
hypotheses is the mean over pairs of group means; without binding these are one vector and it is near 1.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.findings import Scalar
from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p, t_quantile
from interp.statistics.jackknife import equal_groups, standard_error
from interp.statistics.ratio import ratio
from interp.statistics.resampling import random_orders
from interp.statistics.units import FEW_UNITS
from interp.table import Table

from ..measures.finite import finite, finite_or_absent
from ..measures.profiles import Part
from .quantities import QUANTITIES

KEYS = Need("k_pre", at="tunnel")
MASS_BEFORE = Need("mass_previous", at="tunnel")


@dataclass(frozen=True)
class BoundKeys:
    """Key vectors at value positions, the token bound to each (0 .. n_groups − 1), and the sequence of each row.

    `mass_before` is the attention from the value to the token before it, `[layer, row, head]`.
    """

    keys: Float[np.ndarray, "layer row feature"]
    bound: Int[np.ndarray, " row"]
    sequence: Int[np.ndarray, " row"]
    mass_before: Float[np.ndarray, "layer row head"]

    @property
    def n_groups(self) -> int:
        return int(self.bound.max()) + 1

    @property
    def n_sequences(self) -> int:
        return len(np.unique(self.sequence))

    @property
    def random_cosine(self) -> float:
        """Mean |cos| of random directions of as many dimensions, √(2 / (π d)) to leading order."""
        return float(np.sqrt(2 / (np.pi * self.keys.shape[2])))


@dataclass(frozen=True)
class Binding:
    """η² and |cos| by layer, with intervals of η² `[layer, bound]` and both under every exchange of the labels."""

    explained: Float[np.ndarray, " layer"]
    interval: Float[np.ndarray, "layer bound"]
    n_groups: int
    permuted: Float[np.ndarray, "permutation layer"]
    p: Float[np.ndarray, " layer"]
    cosine: Float[np.ndarray, " layer"]
    permuted_cosine: Float[np.ndarray, "permutation layer"]


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


def bound_keys(capture: Capture) -> BoundKeys | str:
    """The value positions of a wind tunnel with the tokens bound to them, or why there are none."""
    outcomes = capture.prompts.outcome_ids
    if not capture.prompts.is_tunnel or outcomes is None or KEYS not in capture.arrays:
        return "the prompts are no wind tunnel's, so which token is bound to which is not known"
    rows = capture.rows_at("tunnel")
    is_value = np.isin(rows["token"], outcomes)
    before = np.roll(rows["token"], 1)
    pair = is_value & (rows["position"] > 0) & ~np.isin(before, outcomes)
    if not pair.any():
        return "no outcome of the task stands in the context right after another token"
    _, bound = np.unique(before[pair], return_inverse=True)
    if bound.max() == 0 or len(np.unique(rows["prompt"][pair])) < 3:
        return "binding needs two bound tokens and three sequences at least"
    keys = finite(capture, KEYS)[:, pair]
    return BoundKeys(
        keys.reshape(*keys.shape[:2], -1).astype(np.float64), bound, rows["prompt"][pair],
        finite_or_absent(capture, MASS_BEFORE)[:, pair],
    )  # fmt: skip


def measure_binding(bound: BoundKeys, n_permutations: int, rng: np.random.Generator) -> Binding:
    """η² and |cos| of every layer with their permuted labels and a delete-group jackknife over sequences."""
    keys = bound.keys - bound.keys.mean(axis=1, keepdims=True)
    mean = bound.keys.mean(axis=1)
    total = np.square(keys).sum(axis=(1, 2))
    explained, cosine = _statistics(keys, mean, total, bound.bound)
    renamed = [_statistics(keys, mean, total, _renamed(bound, rng)) for _ in range(n_permutations)]
    permuted, permuted_cosine = (np.array(x) for x in zip(*renamed, strict=True))
    bounds, n_groups = _jackknife(bound, explained)
    p = maximum_statistic_p(explained, permuted)
    return Binding(explained, bounds, n_groups, permuted, p, cosine, permuted_cosine)


def _statistics(
    centred: Float[np.ndarray, "layer row feature"],
    mean: Float[np.ndarray, "layer feature"],
    total: Float[np.ndarray, " layer"],
    groups: Int[np.ndarray, " row"],
) -> tuple[np.ndarray, np.ndarray]:
    """η² and the mean |cos| between group means, by layer."""
    member = (groups == np.unique(groups)[:, None]).astype(np.float64)
    n = member.sum(axis=1)
    means = (member @ centred) / n[:, None]
    between = (np.square(means).sum(axis=2) * n).sum(axis=1)
    return ratio(between, total), np.array([mean_cosine(m) for m in means + mean[:, None]])


def mean_cosine(vectors: Float[np.ndarray, "vector feature"]) -> float:
    """Mean |cos| over pairs of vectors; NaN where one of them is zero."""
    length = np.linalg.norm(vectors, axis=1)
    if not length.all():
        return float("nan")
    cosine = np.abs(vectors @ vectors.T) / np.outer(length, length)
    return float(cosine[np.triu_indices(len(vectors), 1)].mean())


def _jackknife(bound: BoundKeys, explained: np.ndarray) -> tuple[Float[np.ndarray, "layer bound"], int]:
    """Interval of η² on the logit scale, leaving out groups of whole sequences, and how many groups."""
    _, sequence = np.unique(bound.sequence, return_inverse=True)
    size, groups = equal_groups(bound.n_sequences)
    replicates = np.array([_without(bound, np.isin(sequence, group)) for group in groups])
    with np.errstate(divide="ignore", invalid="ignore"):
        error = standard_error(_logit(replicates), bound.n_sequences, size)
        half = t_quantile(len(groups)) * error
        ends = np.stack([_logit(explained) - half, _logit(explained) + half], axis=1)
        return 1 / (1 + np.exp(-ends)), len(groups)


def _logit(share: np.ndarray) -> np.ndarray:
    return np.log(share) - np.log1p(-share)


def _without(bound: BoundKeys, left_out: np.ndarray) -> np.ndarray:
    keys = bound.keys[:, ~left_out]
    mean = keys.mean(axis=1)
    centred = keys - mean[:, None]
    return _statistics(centred, mean, np.square(centred).sum(axis=(1, 2)), bound.bound[~left_out])[0]


def _renamed(bound: BoundKeys, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    """The bound tokens after a random renaming within every sequence."""
    _, sequence = np.unique(bound.sequence, return_inverse=True)
    names = random_orders(bound.n_groups, bound.n_sequences, rng)
    return names[sequence, bound.bound]
