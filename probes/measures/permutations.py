"""Permutations within strata, and bootstrap bands of means, of whole clusters."""

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.intervals import band
from interp.statistics.resampling import bootstrap_weights, n_before, ordered_within, random_orders, shuffles


def permutations_within(
    stratum: Int[np.ndarray, " row"], cluster: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows that permute whole clusters with the same set of strata.

    Rows stay in their stratum, and a cluster with a unique set of strata stays in place. Exact if the model's answer
    depends only on how much was shown. Between clusters of unequal size, the first rows of a stratum are used, or
    repeated.
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
    """`n` orders of the rows: of whole clusters if units have one row, else within units, the same in a cluster."""
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
