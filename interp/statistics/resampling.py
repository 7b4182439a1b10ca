"""Permutations, half splits and bootstrap resamples of whole units.

A unit holds the rows that belong together: those of one prompt, of one sequence of a wind tunnel, or of a cluster of
prompts that share a template or a document. Permutations move all rows of a unit to another unit, halves share no unit,
and resamples repeat whole units, so that the dependence within units is part of the null.
"""

import numpy as np
from jaxtyping import Float, Int, Shaped

from interp.statistics.intervals import NORMAL, t_quantile

MIN_ALIKE = 5
"""Fewest units of one size that are permuted among themselves; fewer are joined with units of the next size."""


def shuffles(units: Int[np.ndarray, " row"], n: int, rng: np.random.Generator) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows in which every unit has received the rows of another one, in their own order.

    Units are permuted among units with as many rows, which is exact. Where fewer than `MIN_ALIKE` have the same size,
    neighbouring sizes are permuted together: a smaller unit then receives the first rows of a larger one, and a larger
    unit the rows of a smaller one repeatedly, which keeps rows within a unit as similar as they were and the null as
    wide. With one row per unit these are ordinary permutations.
    """
    if len(np.unique(units)) == len(units):
        return random_orders(len(units), n, rng)
    orders = np.empty((n, len(units)), dtype=np.int64)
    for group in _of_similar_size(members_of(units)):
        n_units, largest = sum(len(rows) for rows in group), group[-1].shape[1]
        over_again = np.concatenate([rows[:, np.arange(largest) % rows.shape[1]] for rows in group])
        received = over_again[random_orders(n_units, n, rng)]  # [permutation, unit, member]
        first = 0
        for rows in group:
            mine = received[:, first : first + len(rows), : rows.shape[1]]
            orders[:, rows.ravel()] = mine.reshape(n, -1)
            first += len(rows)
    return orders


def _of_similar_size(members: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The units by size, smallest first; sizes are joined until a group has `MIN_ALIKE` units."""
    groups: list[list[np.ndarray]] = [[]]
    for rows in members:
        if sum(map(len, groups[-1])) >= MIN_ALIKE:
            groups.append([])
        groups[-1].append(rows)
    if len(groups) > 1 and sum(map(len, groups[-1])) < MIN_ALIKE:
        last = groups.pop()
        groups[-1] += last
    return groups


def random_orders(n_items: int, n: int, rng: np.random.Generator) -> Int[np.ndarray, "permutation item"]:
    """`n` random orders of so many items."""
    return rng.permuted(np.tile(np.arange(n_items), (n, 1)), axis=1)


def ordered_within(
    groups: Shaped[np.ndarray, " row"], keys: Float[np.ndarray, "permutation row"]
) -> Int[np.ndarray, "permutation row"]:
    """Orders of the rows that sort the rows of each group by their keys, within the places of the group."""
    code = np.unique(groups, return_inverse=True)[1]
    orders = np.empty(keys.shape, dtype=np.int64)
    orders[:, np.argsort(code, kind="stable")] = np.lexsort((keys, np.broadcast_to(code, keys.shape)), axis=1)
    return orders


def members_of(units: Int[np.ndarray, " row"]) -> list[Int[np.ndarray, "unit member"]]:
    """The rows of every unit, one array for all units of the same number of rows, the smallest first."""
    _, codes, counts = np.unique(units, return_inverse=True, return_counts=True)
    by_unit = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    return [by_unit[starts[counts == count][:, None] + np.arange(count)] for count in np.unique(counts)]


def n_before(names: np.ndarray) -> Int[np.ndarray, " row"]:
    """How often each name occurs earlier in the array."""
    _, codes, counts = np.unique(names, return_inverse=True, return_counts=True)
    found = np.empty(len(codes), dtype=np.int64)
    found[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return found


def split_rows(
    units: Int[np.ndarray, " row"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " second"]]:
    """The rows of a random half of the units, and of the others."""
    names = rng.permutation(np.unique(units))
    first = np.isin(units, names[: -(-len(names) // 2)])
    return np.flatnonzero(first), np.flatnonzero(~first)


def random_signs(
    units: Int[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "permutation row"]:
    """A random sign for each unit, +1 or −1 with equal probability, repeated for all of its rows."""
    names, codes = np.unique(units, return_inverse=True)
    return rng.choice([-1.0, 1.0], size=(n, len(names)))[:, codes]


def bootstrap_weights(
    units: Int[np.ndarray, " row"],
    strata: Int[np.ndarray, " row"] | None,
    n: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "resample row"]:
    """The weight of each row in `n` bootstrap resamples of whole units, drawn with replacement within each stratum.

    Of G units, a resample draws m = (G − 1)(1.96 / t)², each with weight G / m. With m = G − 1, replicates of a mean
    have the standard deviation of its standard error (Rao and Wu 1988, doi 10.1080/01621459.1988.10478591); the m used
    here widens them to the t interval. The degrees of freedom of t are those of the effective number of units
    (`effective_count`). The usual m = G makes intervals too narrow: with 20 units, 7 to 10 % miss the truth.

    Strata are ignored where there are none, or where a unit has rows in several.
    """
    names, first, codes, sizes = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
    of_unit = np.zeros(len(names), dtype=np.int64)
    if strata is not None and (strata == strata[first][codes]).all():
        of_unit = strata[first]
    drawn = np.unique(of_unit)
    freedom = max(1.0, effective_count(sizes) - len(drawn))
    shrunk = (NORMAL / t_quantile(1 + freedom)) ** 2
    weights = np.zeros((n, len(names)))
    for stratum in drawn:
        mine = np.flatnonzero(of_unit == stratum)
        m = max(1, round((len(mine) - 1) * shrunk))
        weights[:, mine] = rng.multinomial(m, np.full(len(mine), 1 / len(mine)), size=n) * (len(mine) / m)
    return weights[:, codes]


def effective_count(sizes: Int[np.ndarray, " unit"]) -> float:
    """The effective number of units, (Σ size)² / Σ size²: as many of equal size give a mean the same variance."""
    return float(sizes.sum() ** 2 / max(1, np.square(sizes).sum()))
