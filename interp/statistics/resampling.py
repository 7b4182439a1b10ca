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
    if len(np.unique(units)) == len(units):
        return random_orders(len(units), n, rng)
    orders = np.empty((n, len(units)), dtype=np.int64)
    for rows in members_of(units):
        orders[:, rows.ravel()] = rows[random_orders(len(rows), n, rng)].reshape(n, -1)  # [permutation, unit · member]
    return orders


def random_orders(n_items: int, n: int, rng: np.random.Generator) -> Int[np.ndarray, "permutation item"]:
    """`n` random orders of so many items."""
    return rng.permuted(np.tile(np.arange(n_items), (n, 1)), axis=1)


def members_of(units: Int[np.ndarray, " row"]) -> list[Int[np.ndarray, "unit member"]]:
    """The rows of every unit, one array for all units of the same number of rows."""
    _, codes, counts = np.unique(units, return_inverse=True, return_counts=True)
    by_unit = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    return [by_unit[starts[counts == count][:, None] + np.arange(count)] for count in np.unique(counts)]


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
