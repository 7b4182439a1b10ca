"""Binding: do keys at value positions encode which key token the value belongs to?

A pair is a key token followed by a value token. At the value's position the key vector (before rotary embedding) of
layer 0 is a function of the value alone; in later layers it can encode the token before it, so that a later query for
that token finds its value by comparing queries with keys. Key vectors at value positions are grouped by the key
token just before:

    η² = Σ_g n_g |mean_g − mean|² / Σ_i |k_i − mean|²        all heads together, between 0 and 1

Null: the bound tokens of every sequence renamed at random, the same renaming for all layers. Equal pairs of a sequence
stay equal, so that repeats are no evidence: in 200 simulations whose keys encode the value alone, renaming rejected
4 % at the 5 % level, and permuting the tokens between sequences 94 %. |cos| is the mean over pairs of group means;
without binding these are one vector and it is near 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from interp.capture import Capture
from interp.need import Need
from interp.statistics.cosines import MEASURES, cosine_measures, expected_abs_cosine
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p, t_quantile
from interp.statistics.jackknife import equal_groups, standard_error
from interp.statistics.ratio import ratio
from interp.statistics.resampling import random_orders
from interp.statistics.units import FEW_UNITS, too_few

from ..measures.finite import finite, finite_or_absent
from ..measures.profiles import Part
from .quantities import QUANTITIES

KEYS = Need("k_pre", at="tunnel")
MASS_BEFORE = Need("mass_previous", at="tunnel")


@dataclass(frozen=True)
class BoundKeys:
    """Key vectors at value positions, the token bound to each, and the sequence of each row, both numbered from 0.

    `mass_before` is the attention from the value to the token before it, `[layer, row, head]`.
    """

    keys: Float[np.ndarray, "layer row feature"]
    bound: Int[np.ndarray, " row"]
    sequence: Int[np.ndarray, " row"]
    mass_before: Float[np.ndarray, "layer row head"]

    @property
    def n_sequences(self) -> int:
        return int(self.sequence.max()) + 1


def binding_findings(capture: Capture, n_permutations: int, rng: np.random.Generator) -> Part:
    """η² and |cos| at the layer where the bound token explains most, and both by layer."""
    bound = bound_keys(capture)
    if isinstance(bound, str):
        return Part(notes=(f"binding is undefined: {bound}.",))
    explained, largest, cosine = measure_binding(bound, n_permutations, rng)
    columns = {
        "layer": np.arange(len(explained.value)),
        "binding": explained,
        "binding_cosine": cosine,
        "mass_on_bound_token": bound.mass_before.mean(axis=1).max(axis=1),
    }
    caption = (
        "Share of key variance at value positions explained by the previous token, |cos| between the mean keys after "
        f"different tokens (random vectors: {largest.words['random']}), and the largest attention of a head on it."
    )
    note = (
        f"Binding is measured at {len(bound.bound)} value positions of {bound.n_sequences} sequences, keys before "
        "rotary embedding, all heads of a layer together."
    )
    scalars = QUANTITIES.scalars({"binding": largest, "binding_cosine": cosine.at([int(largest.words["layer"])])})
    return Part(scalars, {"binding": QUANTITIES.table(columns, caption)}, (note,))


def bound_keys(capture: Capture) -> BoundKeys | str:
    """The value positions of a wind tunnel with the tokens bound to them, or why there are none."""
    outcomes = capture.prompts.outcome_ids
    if not capture.prompts.is_tunnel or outcomes is None or KEYS not in capture.arrays:
        return "the prompts are no wind tunnel's, so which token is bound to which is not known"
    rows = capture.rows_at("tunnel")
    before = np.roll(rows["token"], 1)
    pair = np.isin(rows["token"], outcomes) & (rows["position"] > 0) & ~np.isin(before, outcomes)
    if not pair.any():
        return "no outcome of the task stands in the context right after another token"
    bound, sequence = (np.unique(names[pair], return_inverse=True)[1] for names in (before, rows["prompt"]))
    if bound.max() == 0 or sequence.max() < 2:
        return "binding needs two bound tokens and three sequences at least"
    keys = finite(capture, KEYS)[:, pair]
    return BoundKeys(
        keys.reshape(*keys.shape[:2], -1).astype(np.float64), bound, sequence,
        finite_or_absent(capture, MASS_BEFORE)[:, pair],
    )  # fmt: skip


def measure_binding(
    bound: BoundKeys, n_permutations: int, rng: np.random.Generator
) -> tuple[Estimates, Estimates, Estimates]:
    """η² by layer, the largest of them, and |cos| by layer, compared with renamed tokens.

    The interval of η² is a delete-group jackknife over sequences.
    """
    groupings = [bound.bound, *(_renamed(bound, rng) for _ in range(n_permutations))]
    (explained, *permuted), (cosine, *permuted_cosine) = _statistics(bound.keys, groupings)
    size, groups = equal_groups(bound.n_sequences)
    kept = (~np.isin(bound.sequence, group) for group in groups)
    replicates = np.array([_statistics(bound.keys[:, rows], [bound.bound[rows]])[0, 0] for rows in kept])
    with np.errstate(invalid="ignore"):
        half = t_quantile(len(groups)) * standard_error(special.logit(replicates), bound.n_sequences, size)
        interval = special.expit(special.logit(explained) + np.outer([-1, 1], half))
    n, width, best = bound.n_sequences, bound.keys.shape[2], [int(np.nanargmax(explained))]
    about = {"n": n, "n_unit": "sequence", **too_few(n, FEW_UNITS)}
    words = {"layer": str(best[0]), "n_groups": str(len(groups)), "width": str(width),
             "random": f"{expected_abs_cosine(width):.3f}"}  # fmt: skip
    by_layer = Estimates(explained, interval, about=about, words=words)
    p = maximum_statistic_p(explained, np.array(permuted))
    return (
        by_layer.permuted(np.array(permuted), p),
        by_layer.at(best).permuted(np.max(permuted, axis=1, keepdims=True), p[best]),
        Estimates(cosine, about=about, words=words).permuted(np.array(permuted_cosine), asks="nothing"),
    )


def _statistics(
    keys: Float[np.ndarray, "layer row feature"], groupings: Iterable[Int[np.ndarray, " row"]]
) -> Float[np.ndarray, "statistic grouping layer"]:
    """η² and the mean |cos| between group means, by grouping of the rows and layer."""
    mean = keys.mean(axis=1, keepdims=True)
    centred = keys - mean
    total, found = np.square(centred).sum(axis=(1, 2)), []
    for groups in groupings:
        member = (groups == np.unique(groups)[:, None]).astype(np.float64)
        n = member.sum(axis=1)
        means = (member @ centred) / n[:, None]
        between = (np.square(means).sum(axis=2) * n).sum(axis=1)
        found.append((ratio(between, total), cosine_measures(means + mean)[..., MEASURES.index("abs")]))
    return np.moveaxis(np.array(found), 1, 0)


def _renamed(bound: BoundKeys, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
    return random_orders(int(bound.bound.max()) + 1, bound.n_sequences, rng)[bound.sequence, bound.bound]
