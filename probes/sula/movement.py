"""How a coordinate moves as evidence comes in: with its amount, with the exact entropy, and at equal amounts.

Three rank correlations of a coordinate (of every layer and axis):

    evidence         with how much was shown. One row a problem: Spearman's ρ, amounts exchanged between problems. Many
                     rows a problem or sequence: the mean of each one's own ρ, its sign flipped at random
    entropy          with H_Bayes, exchanged between problems (whole sequences, so that position stays in the null)
    entropy_within   the same with ranks taken among rows that were shown equally much: what is left of it once
                     amount, length and format are the same

All are two-sided, over layers and axes together (Westfall and Young 1993).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.correlation import midranks, ranks_within, resampled_correlations, unit_length
from interp.statistics.estimate import FISHER, excess, maximum_statistic_p, normal_interval
from interp.statistics.resampling import bootstrap_weights, members_of, random_signs, shuffles
from interp.statistics.ridge import PrincipalForm, fit_ridge
from interp.system.threads import side_by_side

from ..measures.answers import Answers
from ..measures.exchanges import exchange_within
from ..measures.places import unit

AXES = ("pc1", "ridge")
VARIABLES = ("evidence", "entropy", "entropy_within")

_SILENT = 1e-6
"""Deviation relative to the length of the mean below which a layer's values are one point and its rounding."""


@dataclass(frozen=True)
class Axes:
    """Axes fitted to one half: unit vectors `[axis, layer, feature]`, the mean, and each score's deviation there.

    Turned so that H_Bayes rises along them in the fitting half. Zero, with a deviation of one, where nothing varies.
    """

    directions: Float[np.ndarray, "axis layer feature"]
    mean: Float[np.ndarray, "layer feature"]
    sigma: Float[np.ndarray, "axis layer"]

    def coordinates(self, points: Float[np.ndarray, "layer row feature"]) -> Float[np.ndarray, "axis layer row"]:
        """Positions along the axes, from the fitting half's mean, in its deviations."""
        along = [
            (rows.astype(np.float64) - mean) @ directions.T / sigma
            for rows, mean, directions, sigma in zip(
                points, self.mean, self.directions.swapaxes(0, 1), self.sigma.T, strict=True
            )
        ]
        return np.moveaxis(np.array(along), -1, 0)


def fit_axes(
    points: Float[np.ndarray, "layer row feature"], answers: Answers, fitting: Bool[np.ndarray, " row"]
) -> Axes:
    """PC1 and the ridge readout of H_Bayes, from the fitting rows alone."""
    target = answers.entropy_exact[fitting] - answers.entropy_exact[fitting].mean()
    units = answers.unit[fitting]
    fitted = side_by_side(lambda rows: _fit_layer(rows[fitting].astype(np.float64), target, units), points)
    directions, means, sigma = (np.array(parts) for parts in zip(*fitted, strict=True))
    return Axes(directions.swapaxes(0, 1), means, sigma.T)


def _fit_layer(rows: np.ndarray, target: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of one layer: the direction of each axis, the mean, and the deviation of each axis's score."""
    directions, sigma = np.zeros((len(AXES), rows.shape[1])), np.ones(len(AXES))
    mean = rows.mean(axis=0)
    centred = rows - mean
    if np.sqrt(np.square(centred).sum(axis=1).mean()) <= _SILENT * max(np.linalg.norm(mean), 1e-30):
        return directions, mean, sigma
    for axis, direction in enumerate(_fitted(centred, target, units)):
        scores = centred @ direction
        if scores.std() > 0:
            directions[axis] = direction * (-1.0 if scores @ target < 0 else 1.0)
            sigma[axis] = scores.std()
    return directions, mean, sigma


def _fitted(centred: np.ndarray, target: np.ndarray, units: np.ndarray) -> Float[np.ndarray, "axis feature"]:
    """`AXES` of rows that vary, of length one; ridge is zero where the target never varies."""
    form = PrincipalForm.of(centred)
    mean = np.full((len(target), 1), len(target) ** -0.5)
    ridge = fit_ridge(form, target[:, None], units, mean).coefficients[:, 0] @ form.directions
    return np.array([form.directions[0], unit(ridge)])


@dataclass(frozen=True)
class Moved:
    """One variable and all places: correlations, their permutations and bootstrap intervals, and p over all places.

    NaN (and no interval) where the coordinate or the variable never varies.
    """

    rho: Float[np.ndarray, " place"]
    permuted: Float[np.ndarray, "permutation place"]
    intervals: Sequence[tuple[float, float] | None]
    p: Float[np.ndarray, " place"]


def movement(
    coordinates: Float[np.ndarray, "place row"],
    answers: Answers,
    n_permutations: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> dict[str, Moved]:
    """The three correlations of every place."""
    free = shuffles(answers.unit, n_permutations, rng)
    within = exchange_within(answers.stratum, answers.unit, n_permutations, rng)
    weights = bootstrap_weights(answers.unit, answers.stratum, n_bootstrap, rng)
    ranks = unit_length(midranks(coordinates))
    inside = unit_length(np.array([ranks_within(x, answers.stratum) for x in coordinates]))
    exact = midranks(answers.entropy_exact)
    exact_inside = ranks_within(answers.entropy_exact, answers.stratum)
    if answers.one_row_each:
        evidence = _correlated(ranks, midranks(answers.evidence), free, weights)
    else:
        evidence = _trends(coordinates, answers, n_permutations, n_bootstrap, rng)
    return {
        "evidence": evidence,
        "entropy": _correlated(ranks, exact, free, weights),
        "entropy_within": _correlated(inside, exact_inside, within, weights),
    }


def _correlated(
    coordinates: Float[np.ndarray, "place row"],
    variable: Float[np.ndarray, " row"],
    orders: Int[np.ndarray, "permutation row"],
    weights: Int[np.ndarray, "resample row"],
) -> Moved:
    """Correlations of ranks (centred, of length one) with the ranks of a variable."""
    y = unit_length(variable[None])[0]
    varies = coordinates.any(axis=1) & bool(y.any())
    rho = np.where(varies, coordinates @ y, np.nan)
    return _tested(rho, y[orders] @ coordinates.T, list(resampled_correlations(coordinates, y, weights)))


def _trends(
    coordinates: Float[np.ndarray, "place row"], answers: Answers, n_permutations: int, n_bootstrap: int,
    rng: np.random.Generator,
) -> Moved:  # fmt: skip
    """Mean over units of Spearman's ρ between amount and coordinate inside the unit, against random signs."""
    trends = []
    for rows in members_of(answers.unit):
        amount = unit_length(midranks(answers.evidence[rows]))
        ranks = midranks(coordinates[:, rows])
        unit_ranks = unit_length(ranks.reshape(-1, rows.shape[1])).reshape(ranks.shape)
        trends.append(np.einsum("pum,um->up", unit_ranks, amount))
    trend = np.concatenate(trends)
    n = len(trend)
    rho = np.where(np.abs(trend).any(axis=0), trend.mean(axis=0), np.nan)
    signs = random_signs(np.arange(n), n_permutations, rng)
    chosen = rng.multinomial(n, np.full(n, 1 / n), n_bootstrap)
    return _tested(rho, signs @ trend / n, list((chosen @ trend / n).T))


def _tested(rho: np.ndarray, permuted: np.ndarray, replicates: Sequence[np.ndarray]) -> Moved:
    moved, moved_permuted = excess(rho, permuted)
    p = maximum_statistic_p(np.abs(moved), np.abs(moved_permuted))
    intervals = [
        normal_interval(float(r), x, FISHER) if np.isfinite(r) else None for r, x in zip(rho, replicates, strict=True)
    ]
    return Moved(rho, permuted, intervals, p)
