"""Does another half of the prompts give the same axis? |cos| between axes of disjoint halves, over random splits.

The null draws directions at random with the covariance of the cloud: w = Σ^½ g, g Gaussian. Where few directions
hold most of the variance such draws resemble one another, and two axes agree without having found anything. Splits
share prompts, and so do their axes: halves h and k have g of correlation |h ∩ k| / √(|h| |k|), as the ridge axes of
labels that mean nothing have. (Independent pairs gave a band that noise left in a third of 200 tests of 10 splits.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.ridge import ridge_axis, solve_positive
from interp.statistics.spectra import centred_gram, leading_vectors, principal_axes

from .layers import ScaledRows

Direction = Callable[[Int[np.ndarray, " member"]], Float[np.ndarray, " feature"]]
"""The unit axis that some rows of a cloud give."""

Split = tuple[np.ndarray, np.ndarray]
"""The rows of two disjoint halves."""


@dataclass(frozen=True, eq=False)
class RandomPairs:
    """`n_draws` times as many pairs of standard Gaussian vectors as splits, the same ones for every cloud.

    `overlap` holds the correlations of all first halves, then all second ones.
    """

    overlap: Float[np.ndarray, "half half"]
    n_draws: int
    seed: int

    @classmethod
    def of(cls, splits: Sequence[Split], n_draws: int, seed: int) -> "RandomPairs":
        """Pairs that depend on one another as far as the halves share rows."""
        halves = [split[i] for i in (0, 1) for split in splits]
        n_rows = 1 + max(int(half.max()) for half in halves)
        member = np.array([np.bincount(half, minlength=n_rows) for half in halves], dtype=np.float64)
        size = np.sqrt(member.sum(axis=1))
        return cls(member @ member.T / np.outer(size, size), n_draws, seed)

    @cached_property
    def _root(self) -> Float[np.ndarray, "half half"]:
        """What makes independent vectors overlap: a square root of the correlations."""
        values, vectors = np.linalg.eigh(self.overlap)
        return vectors * np.sqrt(values.clip(0.0))

    def mean_abs_cosine(self, spectrum: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " draw"]:
        """Mean |cos| over the pairs of each draw, of directions with this covariance spectrum."""
        first, second, inner = self._products(len(spectrum)) @ spectrum
        return np.mean(np.abs(inner) / np.sqrt(first * second), axis=1)

    @lru_cache(maxsize=2)  # noqa: B019 (frozen, small, and asked at every place)
    def _products(self, n_axes: int) -> np.ndarray:
        """Squares of both vectors of every pair, and their product, axis by axis."""
        n_halves = len(self.overlap)
        independent = np.random.default_rng(self.seed).standard_normal((self.n_draws, n_halves, n_axes), np.float32)
        first, second = np.split(self._root @ independent.astype(np.float64), 2, axis=1)
        return np.stack([np.square(first), np.square(second), first * second])


def split_cosines(splits: Sequence[Split], direction: Direction) -> Float[np.ndarray, " split"]:
    """|cos| between the axes of the two halves of every split."""
    return np.array([abs(float(direction(first) @ direction(second))) for first, second in splits])


def ridge_split_cosines(
    rows: ScaledRows, label: Float[np.ndarray, " row"], penalty: float, splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of ridge axes at one penalty α; from the products of the rows where they are known."""
    points, products = rows.points, rows.products
    if products is None:
        return split_cosines(splits, lambda half: ridge_axis(points[half], label[half], penalty))
    weights = subset_weights(products, label, penalty, [half for pair in zip(*splits, strict=True) for half in pair])
    first, second = weights[: len(splits)], weights[len(splits) :]
    seen = second @ products
    inner, squared = np.einsum("sr,sr->s", first, seen), np.einsum("sr,sr->s", second, seen)
    scale = np.sqrt(np.clip(np.einsum("sr,sr->s", first, first @ products) * squared, 0.0, None))
    return np.divide(np.abs(inner), scale, out=np.zeros(len(splits)), where=scale > 0)


def subset_weights(
    products: Float[np.ndarray, "row row"], label: Float[np.ndarray, " row"], penalty: float,
    subsets: Sequence[np.ndarray],
) -> Float[np.ndarray, "subset row"]:  # fmt: skip
    """Weights c of all rows for which Xᵀc is the ridge axis of each subset h at the penalty α, not yet of length one.

    From the products K = XXᵀ, and without centring: (K + α) c = y + μ on h, with μ such that Σc = 0; zero outside h.
    """
    weights = np.zeros((len(subsets), len(label)))
    for mine, rows in zip(weights, subsets, strict=True):
        shifted = products.take(rows, axis=0).take(rows, axis=1)
        shifted[np.diag_indices_from(shifted)] += penalty
        sides = np.column_stack([label[rows] - label[rows].mean(), np.ones(len(rows))])
        solved, ones = solve_positive(shifted, sides).T
        mine[rows] = solved - ones * (solved.sum() / ones.sum())
    return weights


def first_axis_cosines(
    points: Float[np.ndarray, "row feature"], splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of first principal axes; where features outnumber rows, from one matrix of products."""
    if len(points) > points.shape[1]:
        return split_cosines(splits, lambda rows: _first_axis(points[rows]))
    products = np.asarray(points @ points.T, dtype=np.float64)
    first, second = (_first_weights(products, [split[half] for split in splits]) for half in (0, 1))
    return np.abs(np.einsum("sr,sr->s", first @ products, second))


def _first_axis(rows: np.ndarray) -> np.ndarray:
    return principal_axes(rows - rows.mean(axis=0), 1).directions[0]


def _first_weights(products: np.ndarray, halves: Sequence[np.ndarray]) -> np.ndarray:
    """Weights of all rows for which Xᵀc is the first axis of each half: c = u / √λ, zero outside it and zero in sum.

    With u the leading eigenvector of the half's centred products; all zero where nothing varies.
    """
    weights = np.zeros((len(halves), len(products)))
    sizes = np.array([len(half) for half in halves])
    for size in np.unique(sizes):
        mine = np.flatnonzero(sizes == size)
        rows = np.array([halves[int(i)] for i in mine])
        kernels = centred_gram(products[rows[:, :, None], rows[:, None, :]])
        u = leading_vectors(kernels, 1)[..., 0]
        length = np.sqrt(np.einsum("sr,sr->s", u, (kernels @ u[..., None])[..., 0]).clip(0.0))[:, None]
        u = np.divide(u - u.mean(axis=1, keepdims=True), length, out=np.zeros_like(u), where=length > 0)
        weights[mine[:, None], rows] = u
    return weights
