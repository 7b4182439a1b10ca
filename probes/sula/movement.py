"""How a coordinate moves with evidence: rank correlations for every layer and axis.

    evidence         with the amount shown. One row a problem: Spearman's ρ; otherwise the mean ρ within problems or
                     sequences
    entropy          with H_Bayes
    entropy_within   the same with ranks among rows with equal amounts, which also holds length and format fixed

Axes are fitted to one half of the clusters and tested on the other; a number is the mean over random splits (`axes`),
and its interval and p include the scatter of refitting. All are two-sided, over layers and axes together (Westfall and
Young 1993).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.correlation import ranks_within, unit_length, unit_ranks
from interp.statistics.estimates import Estimates, Places
from interp.statistics.intervals import FISHER, half_split_draws
from interp.statistics.resampling import members_of

from ..measures.answers import Answers
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
    """The values of half splits whose held-out rows vary, or all if fewer than two do."""
    values = np.array(found)
    defined = values[np.isfinite(values).any(axis=1)]
    return defined if len(defined) > 1 else values


def _correlations(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> dict[str, Places]:
    """NaN where the coordinate or the variable never varies."""
    exact, free = answers.entropy_exact, unit_ranks(coordinates)
    within = unit_length(np.array([ranks_within(x, answers.stratum) for x in (*coordinates, exact)]))
    return {
        "evidence": _correlation(free, unit_ranks(answers.evidence[None])[0]) if answers.one_row_each
        else _mean_trend(coordinates, answers),
        "entropy": _correlation(free, unit_ranks(exact[None])[0]),
        "entropy_within": _correlation(within[:-1], within[-1]),
    }  # fmt: skip


def _correlation(x: Float[np.ndarray, "place row"], y: Float[np.ndarray, " row"]) -> Places:
    """Of centred rows of length one."""
    return np.where(x.any(axis=1) & bool(y.any()), x @ y, np.nan)


def _mean_trend(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> Places:
    """Mean over units of Spearman's ρ between amount and coordinate among the rows of each."""
    trends = []
    for rows in members_of(answers.unit):
        ranks = unit_ranks(coordinates[:, rows].reshape(-1, rows.shape[1])).reshape(-1, *rows.shape)
        trends.append(np.einsum("pum,um->up", ranks, unit_ranks(answers.evidence[rows]), order="C"))
    of_units = np.concatenate(trends)
    return np.where(of_units.any(axis=0), of_units.mean(axis=0), np.nan)
