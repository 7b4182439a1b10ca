"""Permutations and bootstrap weights that respect what a prompt is.

Rows of one prompt (or one sequence of a wind tunnel) belong together: permutations move whole trajectories
from prompt to prompt, resampling repeats whole prompts. What position alone explains then stays in the null.
"""

import numpy as np
from jaxtyping import Float, Int


def shuffles(units: Int[np.ndarray, " row"], n: int, rng: np.random.Generator) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows in which every unit has received the rows of another one, in their own order.

    Units exchange with units of as many rows. With one row a unit these are plain permutations.
    """
    names, codes, counts = np.unique(units, return_inverse=True, return_counts=True)
    if len(names) == len(units):
        return rng.permuted(np.tile(np.arange(len(units)), (n, 1)), axis=1)
    by_unit = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    orders = np.empty((n, len(units)), dtype=np.int64)
    for count in np.unique(counts):
        rows = by_unit[starts[counts == count][:, None] + np.arange(count)]
        exchanged = rng.permuted(np.tile(np.arange(len(rows)), (n, 1)), axis=1)
        orders[:, rows.ravel()] = rows[exchanged].reshape(n, -1)
    return orders


def bootstrap_weights(
    units: Int[np.ndarray, " row"],
    strata: Int[np.ndarray, " row"],
    n: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, "resample row"]:
    """How often each row occurs in `n` resamples of whole units, drawn with replacement within each stratum.

    A unit belongs to the stratum of its first row.
    """
    names, first, codes = np.unique(units, return_index=True, return_inverse=True)
    weights = np.zeros((n, len(names)), dtype=np.int64)
    for stratum in np.unique(strata[first]):
        mine = np.flatnonzero(strata[first] == stratum)
        weights[:, mine] = rng.multinomial(len(mine), np.full(len(mine), 1 / len(mine)), size=n)
    return weights[:, codes]


def normal_interval(value: float, replicates: Float[np.ndarray, " resample"]) -> tuple[float, float] | None:
    """95 % interval, ± normal quantile × bootstrap error; None where no resample differs."""
    half = 1.96 * float(replicates.std(ddof=1)) if len(replicates) > 1 else 0.0
    return (value - half, value + half) if half > 0 else None
