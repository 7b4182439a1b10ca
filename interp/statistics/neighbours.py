"""Distinct points of a cloud, and distances to the nearest others.

Rows that differ by rounding alone (the same last token in two batches) count as one point: kept apart, they would be
each other's nearest neighbours.
"""

import numpy as np
from jaxtyping import Float, Int

_SAME = 1e-5
"""Relative to the root-mean-square length of the rows: above float32 rounding, below any real difference."""

_CLOSE = 1e-5
"""Squared distance, relative to both squared lengths, below which inner products lose too many digits."""

_AT_ONCE = 1_000_000
"""Numbers of the differences that are held at once."""


def distinct_rows(rows: np.ndarray) -> Int[np.ndarray, " distinct"]:
    """Indices of the first row of every distinct point, ascending.

    Rows are sorted along one random direction, where equal points are adjacent. Neighbours further apart there than
    equal points can be are different; the others are compared in full.
    """
    rows = np.asarray(rows, dtype=np.float64)
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    along = rows @ direction
    order = np.argsort(along, kind="stable")
    tolerance = _SAME * np.sqrt(np.einsum("rf,rf->", rows, rows) / len(rows))
    differs = np.diff(along[order]) > 2 * tolerance * np.linalg.norm(direction)
    near = np.flatnonzero(~differs)
    differs[near] = np.linalg.norm(rows[order[near + 1]] - rows[order[near]], axis=1) > tolerance
    group = np.concatenate([[0], np.cumsum(differs)])
    first = np.full(group[-1] + 1, len(rows))
    np.minimum.at(first, group, order)
    return np.sort(first)


def distances(points: Float[np.ndarray, "row axis"]) -> Float[np.ndarray, "row other"]:
    """Euclidean distances between all pairs of centred points, to nine digits.

    They follow from inner products; of points that are close for their lengths, from their differences.
    """
    squared = points @ points.T
    lengths = np.diagonal(squared).copy()
    squared *= -2
    squared += lengths[:, None] + lengths
    first, second = np.nonzero(squared <= 2 * _CLOSE * lengths.max(initial=0.0))  # no others can be as close
    is_close = (first < second) & (squared[first, second] <= _CLOSE * (lengths[first] + lengths[second]))
    first, second = first[is_close], second[is_close]
    n_at_once = max(1, _AT_ONCE // max(1, points.shape[1]))
    for start in range(0, len(first), n_at_once):
        pairs = first[start : start + n_at_once], second[start : start + n_at_once]
        differences = points[pairs[0]] - points[pairs[1]]
        squared[pairs] = squared[pairs[::-1]] = np.einsum("pa,pa->p", differences, differences)
    np.fill_diagonal(squared, 0.0)
    return np.sqrt(squared, out=squared)


def nearest(
    between: Float[np.ndarray, "row other"], n: int
) -> tuple[Float[np.ndarray, "row neighbour"], Int[np.ndarray, "row neighbour"]]:
    """Distances and numbers of the `n` nearest others of every row, nearest first, from all pairwise distances."""
    left, rows = between.copy(), np.arange(len(between))
    np.fill_diagonal(left, np.inf)
    index, distance = np.empty((len(rows), n), dtype=np.int64), np.empty((len(rows), n))
    for i in range(n):  # far faster for a few than to sort or to partition every row
        index[:, i] = left.argmin(axis=1)
        distance[:, i] = left[rows, index[:, i]]
        left[rows, index[:, i]] = np.inf
    return distance, index
