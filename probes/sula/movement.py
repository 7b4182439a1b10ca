"""How a coordinate moves as evidence comes in: with its amount, with the exact entropy, and at equal amounts.

Three rank correlations of a coordinate (of every layer and axis):

    evidence         with how much was shown. One row a problem: Spearman's ρ. Many rows a problem or sequence: the
                     mean of each one's own ρ, its sign flipped at random
    entropy          with H_Bayes (exchanged by whole sequences, so that position stays in the null)
    entropy_within   the same with ranks taken among rows that were shown equally much: what is left of it once
                     amount, length and format are the same

Attention has no axis: amounts and entropies are permuted between whole clusters. Along axes, which are fitted to one
half of the clusters and tested on the other, a number is the mean over random splits (`axes`), and its interval and p
contain the scatter of refitting. All are two-sided, over layers and axes together (Westfall and Young 1993).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.correlation import ranks_within, resampled_correlations, unit_length, unit_ranks
from interp.statistics.estimates import Estimates, Places
from interp.statistics.intervals import FISHER, half_split_draws
from interp.statistics.resampling import bootstrap_weights, members_of, random_signs, shuffles

from ..measures.answers import Answers
from ..measures.permutations import permutations_within
from .axes import Halved

VARIABLES = ("evidence", "entropy", "entropy_within")


def movement_of_halves(
    halved: Halved, answers: Answers, rows: Bool[np.ndarray, " row"], n_draws: int, rng: np.random.Generator
) -> dict[str, Estimates]:
    """The three correlations of every axis and layer with these rows, each the mean over half splits."""
    found = [
        _correlations(coordinates.reshape(-1, len(answers))[:, held_out], answers.where(held_out))
        for coordinates, held_out in zip(halved.coordinates, halved.held_out & rows, strict=True)
    ]
    by_half_split = {name: _defined([one[name] for one in found]) for name in VARIABLES}
    return {
        name: Estimates.halved(values, FISHER).permuted(half_split_draws(values, n_draws, rng, FISHER), asks="either")
        for name, values in by_half_split.items()
    }


def _defined(found: Sequence[Float[np.ndarray, " place"]]) -> Float[np.ndarray, "split place"]:
    """What half splits say whose held-out rows differ in the variable at all; all of them where fewer than two do."""
    values = np.array(found)
    defined = values[np.isfinite(values).any(axis=1)]
    return defined if len(defined) > 1 else values


def _correlations(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> dict[str, Places]:
    """NaN where the coordinate or the variable never varies."""
    found = {name: _correlation(x, y) for name, (x, y) in _ranked(coordinates, answers).items()}
    return found if "evidence" in found else found | {"evidence": _mean_trend(_trends(coordinates, answers)[0])}


def _ranked(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Ranks of the coordinates and of the variable that each correlation is of, centred and of length one.

    Of the evidence where every unit has one row; elsewhere there are `_trends`.
    """
    exact, free = answers.entropy_exact, unit_ranks(coordinates)
    within = unit_length(np.array([ranks_within(x, answers.stratum) for x in (*coordinates, exact)]))
    found = {"entropy": (free, unit_ranks(exact[None])[0]), "entropy_within": (within[:-1], within[-1])}
    if answers.one_row_each:
        found["evidence"] = free, unit_ranks(answers.evidence[None])[0]
    return found


def _correlation(x: Float[np.ndarray, "place row"], y: Float[np.ndarray, " row"]) -> Places:
    return np.where(x.any(axis=1) & bool(y.any()), x @ y, np.nan)


def _trends(
    coordinates: Float[np.ndarray, "place row"], answers: Answers
) -> tuple[Float[np.ndarray, "unit place"], Int[np.ndarray, " unit"]]:
    """Spearman's ρ between amount and coordinate among the rows of each unit, and the unit's cluster."""
    trends, clusters = [], []
    for rows in members_of(answers.unit):
        ranks = unit_ranks(coordinates[:, rows].reshape(-1, rows.shape[1])).reshape(-1, *rows.shape)
        trends.append(np.einsum("pum,um->up", ranks, unit_ranks(answers.evidence[rows]), order="C"))
        clusters.append(answers.cluster[rows[:, 0]])
    return np.concatenate(trends), np.concatenate(clusters)


def _mean_trend(trends: Float[np.ndarray, "unit place"]) -> Places:
    return np.where(trends.any(axis=0), trends.mean(axis=0), np.nan)


def movement(
    coordinates: Float[np.ndarray, "place row"],
    answers: Answers,
    n_permutations: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> dict[str, Estimates]:
    """The three correlations of every place whose coordinate owes nothing to a fit."""
    free = shuffles(answers.cluster, n_permutations, rng)
    within = permutations_within(answers.stratum, answers.cluster, n_permutations, rng)
    weights = bootstrap_weights(answers.cluster, answers.stratum, n_bootstrap, rng)
    found = {}
    for name, (x, y) in _ranked(coordinates, answers).items():
        orders = within if name == "entropy_within" else free
        found[name] = _moved(_correlation(x, y), unit_length(y[orders]) @ x.T, resampled_correlations(x, y, weights).T)
    if "evidence" not in found:
        trends, cluster = _trends(coordinates, answers)
        flipped = random_signs(cluster, n_permutations, rng) @ trends / len(trends)
        chosen = bootstrap_weights(cluster, None, n_bootstrap, rng)
        found["evidence"] = _moved(_mean_trend(trends), flipped, chosen @ trends / chosen.sum(axis=1)[:, None])
    return found


def _moved(rho: Places, permuted: np.ndarray, replicates: Float[np.ndarray, "resample place"]) -> Estimates:
    return Estimates.resampled(rho, replicates, FISHER).permuted(permuted, asks="either")
