"""The axes along which values may move, fitted to half of the clusters for the others to judge, in many half splits."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.ratio import ratio
from interp.statistics.resampling import split_rows
from interp.statistics.ridge import PrincipalForm, fit_ridge
from interp.system.threads import side_by_side

from ..measures.answers import Answers
from ..measures.layers import unit

AXES = ("pc1", "ridge")
N_HALVINGS = 20

_SILENT = 1e-6
"""Deviation relative to the length of the mean below which a layer's values are one point and its rounding."""


@dataclass(frozen=True)
class Axes:
    """Axes fitted to one half: unit vectors `[axis, layer, feature]`, the mean, and each score's deviation there.

    Turned so that H_Bayes rises along them in the fitting half. Zero, with a deviation of one, where nothing varies.
    """

    directions: Float[np.ndarray, "axis layer feature"]
    mean: Float[np.ndarray, "layer feature"]
    sigma: Float[np.ndarray, "axis layer"]

    def coordinates(self, points: Float[np.ndarray, "layer row feature"]) -> Float[np.ndarray, "axis layer row"]:
        """Positions along the axes, from the fitting half's mean, in its deviations."""
        along = [
            (rows.astype(np.float64) - mean) @ directions.T / sigma
            for rows, mean, directions, sigma in zip(
                points, self.mean, self.directions.swapaxes(0, 1), self.sigma.T, strict=True
            )
        ]
        return np.moveaxis(np.array(along), -1, 0)


def fit_axes(
    points: Float[np.ndarray, "layer row feature"], answers: Answers, fitting: Bool[np.ndarray, " row"]
) -> Axes:
    """PC1 and the ridge readout of H_Bayes, from the fitting rows alone."""
    target = answers.entropy_exact[fitting] - answers.entropy_exact[fitting].mean()
    clusters = answers.cluster[fitting]
    fitted = side_by_side(lambda rows: _fit_layer(rows[fitting].astype(np.float64), target, clusters), points)
    directions, means, sigma = (np.array(parts) for parts in zip(*fitted, strict=True))
    return Axes(directions.swapaxes(0, 1), means, sigma.T)


def _fit_layer(rows: np.ndarray, target: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of one layer: the direction of each axis, the mean, and the deviation of each axis's score."""
    directions, sigma = np.zeros((len(AXES), rows.shape[1])), np.ones(len(AXES))
    mean = rows.mean(axis=0)
    centred = rows - mean
    if np.sqrt(np.square(centred).sum(axis=1).mean()) <= _SILENT * max(np.linalg.norm(mean), 1e-30):
        return directions, mean, sigma
    for axis, direction in enumerate(_fitted(centred, target, clusters)):
        scores = centred @ direction
        if scores.std() > 0:
            directions[axis] = direction * (-1.0 if scores @ target < 0 else 1.0)
            sigma[axis] = scores.std()
    return directions, mean, sigma


def _fitted(centred: np.ndarray, target: np.ndarray, clusters: np.ndarray) -> Float[np.ndarray, "axis feature"]:
    """`AXES` of rows that vary, of length one; ridge is zero where the target never varies."""
    form = PrincipalForm.of(centred)
    mean = np.full((len(target), 1), len(target) ** -0.5)
    ridge = fit_ridge(form, target[:, None], clusters, mean).coefficients[:, 0] @ form.directions
    return np.array([form.directions[0], unit(ridge)])


@dataclass(frozen=True)
class Halved:
    """Coordinates of all rows along the axes of every half split, and the rows that these were not fitted to."""

    coordinates: Float[np.ndarray, "halving axis layer row"]
    judged: Bool[np.ndarray, "halving row"]

    @classmethod
    def of(
        cls, points: Float[np.ndarray, "layer row feature"], answers: Answers, fitting: Bool[np.ndarray, " row"],
        rng: np.random.Generator,
    ) -> "Halved":  # fmt: skip
        """Axes of half of the clusters, of the `fitting` rows alone; no half split without two of them."""
        judged = np.ones((N_HALVINGS, len(answers)), dtype=bool)
        for others in judged:
            others[split_rows(answers.cluster, rng)[0]] = False
        judged = judged[[(fitting & ~others).sum() > 1 for others in judged]]
        fitted = [fit_axes(points, answers, fitting & ~others).coordinates(points) for others in judged]
        return cls(np.array(fitted).reshape(len(judged), len(AXES), len(points), len(answers)), judged)

    @property
    def mean(self) -> Float[np.ndarray, "axis layer row"]:
        """Of every row over the half splits that it judges; NaN for one that judges none."""
        weight = self.judged.sum(axis=0)
        return ratio(np.einsum("halr,hr->alr", self.coordinates, self.judged.astype(np.float64)), weight)
