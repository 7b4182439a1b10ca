"""Does attention move where the advantage is positive? Agreement of A_ij with the change of α_ij over a step.

Compared are the pairs (i, j) of rows with at least two visible keys that the loss depends on. Three measures of every
head:

    moved   Σ |Δα_ij| [A_ij Δα_ij > 0] / Σ |Δα_ij|        the share of all attention that moved, moved to better values
    signs   the share of pairs with A_ij Δα_ij > 0
    rho     Spearman's correlation of A_ij and Δα_ij

Expected agreement is that with advantages permuted within every row, among the keys that the query sees; the expected
`moved` is not one half where weights are similar. Rows of a sequence share their keys, and a key that is good for one
row is often good for all: the test is therefore over whole sequences, whose excess over the expectation changes sign.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.correlation import unit_ranks
from interp.statistics.ratio import ratio
from interp.statistics.resampling import random_signs

from ..measures.sign_flips import flip_p, flipped_means

MEASURES = ("moved", "signs", "rho")


Values = Float[np.ndarray, "head pair"]


@dataclass(frozen=True)
class Pairs:
    """Advantages and changes of the pairs of one sequence, row by row; `row` is sorted."""

    row: Int[np.ndarray, " pair"]
    advantage: Values
    change: Values

    @classmethod
    def of(
        cls,
        advantage: Float[np.ndarray, "head pos key"],
        change: Float[np.ndarray, "head pos key"],
        visible: Bool[np.ndarray, "pos key"],
    ) -> "Pairs":
        """The visible pairs of all rows that have a choice and an effect."""
        has_choice = visible.sum(axis=1) > 1
        has_effect = ((advantage != 0) & visible).any(axis=(0, 2))
        row, key = np.nonzero(visible & (has_choice & has_effect)[:, None])
        return cls(row, advantage[:, row, key], change[:, row, key])


def agreement(pairs: Pairs, orders: Iterable[np.ndarray]) -> Float[np.ndarray, "order measure head"]:
    """The three measures of every head with the advantages in each order; NaN where no attention moved."""
    ranks, moved, size = unit_ranks(pairs.advantage), unit_ranks(pairs.change), np.abs(pairs.change)
    total = size.sum(axis=1)
    found = []
    for order in orders:
        agrees = np.sign(pairs.advantage[:, order]) * np.sign(pairs.change) > 0
        share = ratio((size * agrees).sum(axis=1), total)
        # Spearman's ρ is 0 for a head that nothing moved in; it is undefined
        rho = (ranks[:, order] * moved).sum(axis=1)
        found.append([share, *np.where(total > 0, [agrees.mean(axis=1), rho], np.nan)])
    return np.array(found)


def permutations(pairs: Pairs, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """`n` orders of the pairs that permute the advantages of every row, the same for all heads."""
    for _ in range(n):
        yield np.argsort(pairs.row + rng.random(len(pairs.row)))


@dataclass(frozen=True)
class Routed:
    """Agreement of every sequence and head over one kind of step, and its expectation under permuted advantages.

    `signs` multiply the excess of whole sequences in the test.
    """

    observed: Float[np.ndarray, "unit measure head"]
    expected: Float[np.ndarray, "unit measure head"]
    signs: Float[np.ndarray, "permutation unit"]

    @classmethod
    def of(cls, all_pairs: Sequence[Pairs], n: int, rng: np.random.Generator) -> "Routed":
        """Expected is the mean over `n` permutations; as many draws of the signs are made."""
        observed = np.concatenate([agreement(pairs, [np.arange(len(pairs.row))]) for pairs in all_pairs])
        expected = np.stack([agreement(pairs, permutations(pairs, n, rng)).mean(axis=0) for pairs in all_pairs])
        return cls(observed, expected, random_signs(np.arange(len(all_pairs)), n, rng))

    def test(
        self, values: Float[np.ndarray, "unit entry"], expected: Float[np.ndarray, "unit entry"]
    ) -> tuple[Float[np.ndarray, " entry"], Float[np.ndarray, "permutation entry"]]:
        """p of the mean excess of every entry, corrected over them, and the means under the null."""
        excess = values - expected
        return flip_p(excess, self.signs), expected.mean(axis=0) + flipped_means(excess, self.signs)
