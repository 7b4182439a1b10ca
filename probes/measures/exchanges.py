"""Exchanges within strata, and bootstrap bands of means over whole units."""

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.estimate import band
from interp.statistics.resampling import bootstrap_weights, random_orders, shuffles


def exchange_within(
    stratum: Int[np.ndarray, " row"], unit: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows in which whole units are exchanged with units of the same strata, row by row.

    Rows of equal k are exchanged only among themselves, and sequences keep their positions. Exact where the model's
    answer depends on how much was shown, and not on what; a unit like no other stays as it is.
    """
    signatures: dict[tuple[int, ...], list[np.ndarray]] = {}
    by_unit = np.argsort(unit, kind="stable")
    for rows in np.split(by_unit, np.flatnonzero(np.diff(unit[by_unit])) + 1):
        signatures.setdefault(tuple(stratum[rows].tolist()), []).append(rows)
    orders = np.tile(np.arange(len(unit)), (n, 1))
    for alike in signatures.values():
        rows = np.concatenate(alike)
        orders[:, rows] = rows[shuffles(unit[rows], n, rng)]
    return orders


def rearranged_within(
    unit: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows: all of them where a unit has one row, else those of each unit among themselves."""
    if len(np.unique(unit)) == len(unit):
        return random_orders(len(unit), n, rng)
    orders = np.empty((n, len(unit)), dtype=np.int64)
    keys = rng.random((n, len(unit)))
    orders[:, np.argsort(unit, kind="stable")] = np.lexsort((keys, np.broadcast_to(unit, keys.shape)), axis=1)
    return orders


def mean_bands(
    values: Float[np.ndarray, "value row"],
    unit: Int[np.ndarray, " row"],
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "bound value"]:
    """95 % bootstrap bands of means over rows, whole units resampled."""
    weights = bootstrap_weights(unit, np.zeros(len(unit), dtype=np.int64), n_bootstrap, rng)
    return band((weights @ values.T) / weights.sum(axis=1, keepdims=True))
