"""Intrinsic dimension: how many coordinates a point needs to find its nearest neighbours.

TwoNN (Facco et al. 2017, Scientific Reports 7, 12140): the ratio r₂/r₁ of the distances to the second and the
first neighbour follows a Pareto law whose exponent is the dimension. The estimate is scikit-dimension's maximum
likelihood one, with the largest tenth of the ratios censored. It needs many points: with n points no more
than about 2 log₂ n dimensions can be told apart, so a cloud of 75 in 1,024 dimensions reads about 100, and
only the comparison with a flat cloud of the same covariance says something.

The interval is a jackknife over groups of whole prompts on the log scale (interp.jackknife).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.jackknife import equal_groups, standard_error, t_quantile
from interp.neighbours import Nearest, distances, distinct_rows, nearest, principal_coordinates
from interp.nulls import cloud_of_same_covariance
from interp.spectra import scaled

MIN_POINTS = 20
"""Distinct points below which no dimension is given."""


@dataclass(frozen=True)
class Dimension:
    """An intrinsic dimension with its interval and draws from flat clouds; or NaN and the reason why not."""

    value: float
    interval: tuple[float, float] | None
    null_draws: Float[np.ndarray, " draw"]
    reason: str = ""
    method: str = ""


def intrinsic_dimension(
    rows: np.ndarray, units: Int[np.ndarray, " row"], n_null: int, rng: np.random.Generator
) -> Dimension:
    """The TwoNN dimension of the distinct points of a cloud, beside `n_null` Gaussian clouds of the same covariance."""
    kept = distinct_rows(rows)
    if len(kept) < MIN_POINTS:
        reason = f"{len(kept)} distinct points; TwoNN wants at least {MIN_POINTS}"
        return Dimension(float("nan"), None, np.empty(0), reason)
    centred = scaled(rows[kept], "centred")
    names, codes = np.unique(units[kept], return_inverse=True)
    size, groups = equal_groups(len(names))
    members = [np.flatnonzero(np.isin(codes, group)) for group in groups]
    n_neighbours = min(len(kept) - 1, 2 + max(len(rows) for rows in members))
    near = nearest(distances(principal_coordinates(centred)), n_neighbours)
    value = two_nn(near.distance)
    interval = _jackknife(value, near, members, (len(names), size)) if len(names) >= MIN_POINTS else None
    draws = np.array([_flat_dimension(centred, rng) for _ in range(n_null)])
    method = f"jackknife, {len(groups)} groups of {size}, log scale"
    return Dimension(value, interval, draws, "" if interval else "too few prompts for a jackknife", method)


def two_nn(nearest_distances: Float[np.ndarray, "row neighbour"]) -> float:
    """TwoNN from the distances of every point to its neighbours, nearest first (two are used, none of them zero)."""
    from skdim.id import TwoNN

    return float(TwoNN(dist=True, method="mle").fit(nearest_distances[:, :2]).dimension_)


def _jackknife(
    value: float, near: Nearest, members: Sequence[np.ndarray], sizes: tuple[int, int]
) -> tuple[float, float] | None:
    """Without a group the nearest two survivors take over; one neighbour list serves every replicate."""
    replicates = np.log([two_nn(_surviving(near, group)) for group in members])
    error = float(standard_error(replicates, *sizes))
    half = t_quantile(len(replicates)) * error
    return (float(value * np.exp(-half)), float(value * np.exp(half))) if half > 0 else None


def _surviving(near: Nearest, left_out: Int[np.ndarray, " member"]) -> Float[np.ndarray, "row 2"]:
    """Distances to the first two neighbours that are not left out, for the rows that are not."""
    alive = np.ones(len(near.index), dtype=bool)
    alive[left_out] = False
    usable = alive[near.index[alive]]
    first_two = np.argsort(~usable, axis=1, kind="stable")[:, :2]
    return np.take_along_axis(near.distance[alive], first_two, axis=1)


def _flat_dimension(centred: np.ndarray, rng: np.random.Generator) -> float:
    return two_nn(nearest(distances(cloud_of_same_covariance(centred, rng)), 2).distance)
