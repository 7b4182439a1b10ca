"""Does another half of the prompts give the same axis? |cos| between axes of disjoint halves, over random splits.

The null draws directions at random with the covariance of the cloud: w = Σ^½ g, g Gaussian. Where few directions
hold most of the variance such draws resemble one another, and two axes agree without having found anything. Splits
share prompts, and so do their axes: halves h and k have g of correlation |h ∩ k| / √(|h| |k|), as the ridge axes of
labels that mean nothing have. (Independent pairs gave a band that noise left in a third of 200 tests of 10 splits.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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

    `root` makes independent vectors of all first halves, then all second ones, overlap: a square root of their
    correlations.
    """

    root: Float[np.ndarray, "half half"]
    n_draws: int
    seed: int

    @classmethod
    def of(cls, splits: Sequence[Split], n_draws: int, seed: int) -> "RandomPairs":
        """Pairs that depend on one another as far as the halves share rows."""
        halves = [split[i] for i in (0, 1) for split in splits]
        n_rows = 1 + max(int(half.max()) for half in halves)
        member = np.array([np.bincount(half, minlength=n_rows) for half in halves], dtype=np.float64)
        size = np.sqrt(member.sum(axis=1))
        values, vectors = np.linalg.eigh(member @ member.T / np.outer(size, size))
        return cls(vectors * np.sqrt(values.clip(0.0)), n_draws, seed)

    def mean_abs_cosine(self, spectrum: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " draw"]:
        """Mean |cos| over the pairs of each draw, of directions with this covariance spectrum."""
        first, second, inner = self._products(len(spectrum)) @ spectrum
        return np.mean(np.abs(inner) / np.sqrt(first * second), axis=1)

    @lru_cache(maxsize=2)  # noqa: B019 (frozen, small, and asked at every place)
    def _products(self, n_axes: int) -> np.ndarray:
        """Squares of both vectors of every pair, and their product, axis by axis."""
        size = self.n_draws, len(self.root), n_axes
        independent = np.random.default_rng(self.seed).standard_normal(size, np.float32)
        first, second = np.split(self.root @ independent.astype(np.float64), 2, axis=1)
        return np.stack([np.square(first), np.square(second), first * second])


def split_cosines(splits: Sequence[Split], direction: Direction) -> Float[np.ndarray, " split"]:
    """|cos| between the axes of the two halves of every split."""
    return np.array([abs(float(direction(first) @ direction(second))) for first, second in splits])


def ridge_split_cosines(
    rows: ScaledRows, label: Float[np.ndarray, " row"], penalty: float, splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of ridge axes at one penalty α; from the products of the rows where they are known.

    About the mean of a half its products are K, and its axis is Xᵀc with (K + α) c = y.
    """
    points, products = rows.points, rows.products
    if products is None:
        return split_cosines(splits, lambda half: ridge_axis(points[half], label[half], penalty))

    def weights(kernel: np.ndarray, half: np.ndarray) -> np.ndarray:
        return solve_positive(kernel + penalty * np.eye(len(half)), label[half] - label[half].mean())

    return _weights_cosines(products, splits, weights)


def first_axis_cosines(
    points: Float[np.ndarray, "row feature"], splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of first principal axes; where features outnumber rows, from one matrix of products."""
    if len(points) > points.shape[1]:
        return split_cosines(
            splits, lambda half: principal_axes(points[half] - points[half].mean(axis=0), 1).directions[0]
        )
    products = np.asarray(points @ points.T, dtype=np.float64)
    return _weights_cosines(products, splits, lambda kernel, half: leading_vectors(kernel, 1)[:, 0])


def _weights_cosines(
    products: Float[np.ndarray, "row row"], splits: Sequence[Split],
    weights: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Float[np.ndarray, " split"]:  # fmt: skip
    """`split_cosines` of axes Xᵀc; `weights` gives the c of a half from its products about its mean.

    Zero where nothing varies.
    """
    first, second = np.zeros((2, len(splits), len(products)))
    for i, split in enumerate(splits):
        for side, half in zip((first, second), split, strict=True):
            kernel = centred_gram(products[half][:, half])
            c = weights(kernel, half)
            length = np.sqrt(max(0.0, c @ kernel @ c))
            if length > 0:
                side[i, half] = (c - c.mean()) / length
    return np.abs(np.einsum("sr,sr->s", first @ products, second))
