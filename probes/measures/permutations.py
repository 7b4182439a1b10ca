"""Exchanges within strata, and bootstrap bands of means, over whole clusters."""

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.intervals import band
from interp.statistics.resampling import bootstrap_weights, n_before, ordered_within, random_orders, shuffles


def permutations_within(
    stratum: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows in which whole clusters are exchanged with clusters of the same strata, row by row.

    Rows of equal k are exchanged only among themselves, and sequences keep their positions. Exact where the model's
    answer depends on how much was shown, and not on what; a cluster like no other stays as it is. Of clusters of
    unequal size one receives the first rows that the other has of each stratum, or these over again.
    """
    by_cluster = np.lexsort((stratum, cluster))
    ends = np.flatnonzero(np.diff(cluster[by_cluster])) + 1
    alike: dict[tuple[int, ...], list[np.ndarray]] = {}
    for rows in np.split(by_cluster, ends):
        alike.setdefault(tuple(np.unique(stratum[rows]).tolist()), []).append(rows)
    orders = np.tile(np.arange(len(cluster)), (n, 1))
    for members in alike.values():
        counts = np.array([np.unique(stratum[rows], return_counts=True)[1] for rows in members])
        of_slot = np.repeat(np.arange(counts.shape[1]), counts.max(axis=0))  # as many slots as any has of a stratum
        number, in_cluster = n_before(of_slot), counts[:, of_slot]
        first = (np.cumsum(counts, axis=1) - counts)[:, of_slot]
        padded = np.array([np.resize(rows, max(map(len, members))) for rows in members])  # beyond its end nobody reads
        over_again = np.take_along_axis(padded, first + number % in_cluster, axis=1)
        received = random_orders(len(members), n, rng)
        for i, rows in enumerate(members):
            orders[:, rows] = over_again[received[:, i]][:, number < in_cluster[i]]
    return orders


def rearranged_within(
    unit: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows: of whole clusters where a unit has one row, else those of each unit among themselves.

    Units of one cluster are rearranged alike.
    """
    if len(np.unique(unit)) == len(unit):
        return shuffles(cluster, n, rng)
    cell = np.unique(np.stack([cluster, n_before(unit)]), axis=1, return_inverse=True)[1]
    return ordered_within(unit, rng.random((n, int(cell.max()) + 1))[:, cell])


def mean_bands(
    values: Float[np.ndarray, "value row"],
    cluster: Int[np.ndarray, " row"],
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "bound value"]:
    """95 % bootstrap bands of means over rows, whole clusters resampled."""
    weights = bootstrap_weights(cluster, None, n_bootstrap, rng)
    return band((weights @ values.T) / weights.sum(axis=1, keepdims=True))
