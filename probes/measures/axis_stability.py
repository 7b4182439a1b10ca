"""Does another half of the prompts give the same axis? |cos| between axes of disjoint halves, over random splits.

The null draws directions at random with the covariance of the cloud: w = Σ^½ g, g Gaussian. Where few directions
hold most of the variance such draws resemble one another, and two axes agree without having found anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg

from interp.statistics.spectra import centred_gram, leading_vectors, principal_axes

Direction = Callable[[Int[np.ndarray, " member"]], Float[np.ndarray, " feature"]]
"""The unit axis that some rows of a cloud give."""

Split = tuple[np.ndarray, np.ndarray]
"""The rows of two disjoint halves."""


@dataclass(frozen=True)
class RandomPairs:
    """`n_draws` times `n_pairs` pairs of standard Gaussian vectors, the same ones for every cloud."""

    n_draws: int
    n_pairs: int
    seed: int

    def mean_abs_cosine(self, spectrum: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " draw"]:
        """Mean |cos| over the pairs of each draw, of directions with this covariance spectrum."""
        rng = np.random.default_rng(self.seed)
        found = np.empty(self.n_draws)
        for i in range(self.n_draws):
            pairs = rng.standard_normal((2, self.n_pairs, len(spectrum)), dtype=np.float32)
            weighted = np.square(pairs) @ spectrum
            inner = (pairs[0] * pairs[1]) @ spectrum
            found[i] = np.mean(np.abs(inner) / np.sqrt(weighted[0] * weighted[1]))
        return found


def split_cosines(splits: Sequence[Split], direction: Direction) -> Float[np.ndarray, " split"]:
    """|cos| between the axes of the two halves of every split."""
    return np.array([abs(float(direction(first) @ direction(second))) for first, second in splits])


def ridge_split_cosines(
    points: Float[np.ndarray, "row feature"], label: Float[np.ndarray, " row"], penalty: float, splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of ridge axes at one penalty α; where features outnumber rows, from one matrix of products."""
    if len(points) > points.shape[1]:
        return split_cosines(splits, lambda rows: _ridge_axis(points[rows], label[rows], penalty))
    products = points @ points.T
    return np.array([_dual_cosine(products, label, penalty, split) for split in splits])


def _ridge_axis(rows: np.ndarray, label: np.ndarray, penalty: float) -> np.ndarray:
    x, y = rows - rows.mean(axis=0), label - label.mean()
    axis = _solve_positive(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ y)
    length = float(np.linalg.norm(axis))
    return axis / length if length > 0 else axis


def _solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution for a positive definite matrix, which is overwritten."""
    return linalg.cho_solve(linalg.cho_factor(matrix, overwrite_a=True, check_finite=False), right, check_finite=False)


def _dual_cosine(products: np.ndarray, label: np.ndarray, penalty: float, split: Split) -> float:
    """The axes are Xᵀc with c = (K + α)⁻¹ y on centred rows; their products need K alone."""
    weights, lengths = [], []
    for rows in split:
        kernel = centred_gram(products[np.ix_(rows, rows)])
        shifted = kernel.copy()
        shifted[np.diag_indices_from(shifted)] += penalty
        c = _solve_positive(shifted, label[rows] - label[rows].mean())
        # weights that sum to zero see rows and centred rows alike
        weights.append(c - c.mean())
        lengths.append(np.sqrt(max(0.0, float(c @ kernel @ c))))
    inner = abs(float(weights[0] @ products[np.ix_(*split)] @ weights[1]))
    scale = lengths[0] * lengths[1]
    return inner / scale if scale > 0 else 0.0


def first_axis_cosines(
    points: Float[np.ndarray, "row feature"], splits: Sequence[Split]
) -> Float[np.ndarray, " split"]:
    """`split_cosines` of first principal axes; where features outnumber rows, from one matrix of products."""
    if len(points) > points.shape[1]:
        return split_cosines(splits, lambda rows: _first_axis(points[rows]))
    products = points @ points.T
    return np.array([_first_cosine(products, split) for split in splits])


def _first_axis(rows: np.ndarray) -> np.ndarray:
    return principal_axes(rows - rows.mean(axis=0), 1).directions[0]


def _first_cosine(products: np.ndarray, split: Split) -> float:
    """The axes are Xᵀu / √λ with u the leading eigenvector of each half's centred products."""
    vectors, squared = [], []
    for rows in split:
        kernel = centred_gram(products[np.ix_(rows, rows)])
        u = leading_vectors(kernel, 1)[:, 0]
        vectors.append(u - u.mean())
        squared.append(max(0.0, float(u @ kernel @ u)))
    scale = (squared[0] * squared[1]) ** 0.5
    return abs(float(vectors[0] @ products[np.ix_(*split)] @ vectors[1])) / scale if scale > 0 else 0.0
