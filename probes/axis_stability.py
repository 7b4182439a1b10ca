"""Does another half of the prompts give the same axis? |cos| between axes of disjoint halves, over random splits.

The null draws directions at random with the covariance of the cloud: w = Σ^½ g, g Gaussian. Where few directions
hold most of the variance such draws resemble one another, and two axes agree without having found anything.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg

from interp.spectra import eigenvalues, principal_axes

Direction = Callable[[Int[np.ndarray, " member"]], Float[np.ndarray, " feature"]]
"""The unit axis that some rows of a cloud give."""


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


def split_cosines(
    splits: list[tuple[np.ndarray, np.ndarray]], direction: Direction
) -> Float[np.ndarray, " split"]:
    """|cos| between the axes of the two halves of every split."""
    return np.array([abs(float(direction(first) @ direction(second))) for first, second in splits])


def ridge_direction(
    points: Float[np.ndarray, "row feature"], label: Float[np.ndarray, " row"], penalty: float
) -> Direction:
    """The ridge axis of some rows at one penalty α."""

    def direction(rows: np.ndarray) -> np.ndarray:
        x, y = points[rows] - points[rows].mean(axis=0), label[rows] - label[rows].mean()
        wide = x.shape[0] <= x.shape[1]
        gram = x @ x.T if wide else x.T @ x
        gram[np.diag_indices_from(gram)] += penalty
        solved = linalg.solve(gram, y if wide else x.T @ y, assume_a="pos", overwrite_a=True, check_finite=False)
        axis = x.T @ solved if wide else solved
        length = float(np.linalg.norm(axis))
        return axis / length if length > 0 else axis

    return direction


def first_direction(points: Float[np.ndarray, "row feature"]) -> Direction:
    """The first principal axis of some rows."""

    def direction(rows: np.ndarray) -> np.ndarray:
        return principal_axes(points[rows] - points[rows].mean(axis=0), 1).directions[0]

    return direction


def covariance_spectrum(points: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " axis"]:
    """The eigenvalues that random directions of the same covariance are drawn with."""
    return eigenvalues(points - points.mean(axis=0))
