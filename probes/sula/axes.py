"""The axes along which values may move, fitted to half of the clusters, in many half splits."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.ratio import ratio
from interp.statistics.resampling import split_rows
from interp.statistics.ridge import fit_ridge
from interp.system.threads import side_by_side

from ..measures.answers import Answers
from ..measures.half_forms import HalfForm
from ..measures.halves import HalfSplit
from ..measures.layers import ScaledRows

AXES = ("pc1", "ridge")
N_HALF_SPLITS = 20

_SILENT = 1e-6
"""Deviation relative to the length of the mean below which a layer's values are one point and its rounding."""


def fit_axes(
    points: Float[np.ndarray, "layer row feature"], answers: Answers, fitting: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "axis layer feature"]:
    """PC1 and the ridge readout of H_Bayes of the fitting rows alone, as unit vectors along which H_Bayes rises there.

    Zero where nothing varies.
    """
    half_split = _fitted_on(fitting)

    def fit(layer: np.ndarray) -> np.ndarray:
        rows = _about_mean(layer, fitting)
        form = HalfForm.of(rows, half_split)
        if form is None:
            return np.zeros((len(AXES), layer.shape[1]))
        return np.array([form.direction(each, rows, half_split) for each in _coefficients(form, half_split, answers).T])

    return np.stack(side_by_side(fit, points), axis=1)


def _fitted_on(fitting: Bool[np.ndarray, " row"]) -> HalfSplit:
    """A half split with these rows to fit on, and all rows to predict."""
    return HalfSplit.of(np.flatnonzero(fitting), np.arange(len(fitting)), np.empty((len(fitting), 0)))


def _about_mean(points: Float[np.ndarray, "row feature"], fitting: Bool[np.ndarray, " row"]) -> ScaledRows:
    """All rows of a layer less the mean of the fitting ones; zeros where these are one point."""
    rows = points.astype(np.float64)
    mean = rows[fitting].mean(axis=0)
    rows -= mean
    if np.sqrt(np.square(rows[fitting]).sum(axis=1).mean()) <= _SILENT * np.linalg.norm(mean):
        rows[:] = 0.0
    return ScaledRows.of(rows)


def _coefficients(form: HalfForm, half_split: HalfSplit, answers: Answers) -> Float[np.ndarray, "component axis"]:
    """Coefficients of `AXES` on the principal axes, scaled so that predictions are coordinates."""
    fitting = half_split.fitting
    target = answers.entropy_exact[fitting] - answers.entropy_exact[fitting].mean()
    ridge = fit_ridge(form.axes, target[:, None], answers.cluster[fitting], half_split.taken_out).coefficients
    found = np.hstack([np.eye(len(ridge), 1), ridge])
    scores = form.axes.left @ (form.axes.singular[:, None] * found)
    sign = np.where(target @ scores < 0, -1.0, 1.0)
    deviation = scores.std(axis=0)
    return found * np.divide(sign, deviation, out=np.zeros(len(AXES)), where=deviation > 0)


@dataclass(frozen=True)
class Halved:
    """Coordinates of all rows along the axes of every half split, and the rows that these were not fitted to.

    Coordinates are from the mean of the fitting rows, in their deviations; zero where nothing varies.
    """

    coordinates: Float[np.ndarray, "split axis layer row"]
    held_out: Bool[np.ndarray, "split row"]

    @classmethod
    def of(
        cls, points: Float[np.ndarray, "layer row feature"], answers: Answers, fitting: Bool[np.ndarray, " row"],
        rng: np.random.Generator,
    ) -> "Halved":  # fmt: skip
        """Axes of half of the clusters, of the `fitting` rows alone; no half split without two of them."""
        held_out = np.ones((N_HALF_SPLITS, len(answers)), dtype=bool)
        for others in held_out:
            others[split_rows(answers.cluster, rng)[0]] = False
        held_out = held_out[[(fitting & ~others).sum() > 1 for others in held_out]]
        half_splits = [_fitted_on(fitting & ~others) for others in held_out]

        def coordinates(layer: np.ndarray) -> np.ndarray:
            found, rows = np.zeros((len(half_splits), len(AXES), len(layer))), _about_mean(layer, fitting)
            for mine, half_split in zip(found, half_splits, strict=True):
                form = HalfForm.of(rows, half_split)
                if form is not None:
                    mine[:] = form.predicted(_coefficients(form, half_split, answers)).T
            return found

        return cls(np.stack(side_by_side(coordinates, points), axis=2), held_out)

    @property
    def mean(self) -> Float[np.ndarray, "axis layer row"]:
        """The mean of every row over the half splits that hold it out; NaN without any."""
        weight = self.held_out.sum(axis=0)
        return ratio(np.einsum("halr,hr->alr", self.coordinates, self.held_out.astype(np.float64)), weight)
