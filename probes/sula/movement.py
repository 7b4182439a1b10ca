"""How a coordinate moves with evidence: rank correlations for every layer and axis.

    evidence         with the amount shown. One row a problem: Spearman's ρ; otherwise the mean ρ within problems or
                     sequences
    entropy          with H_Bayes
    entropy_within   the same with ranks among rows with equal amounts, which also holds length and format fixed

Axes are fitted to one half of the clusters and tested on the other; a number is the mean over random splits (`Halved`),
and its interval and p include the scatter of refitting. All are two-sided, over layers and axes together (Westfall and
Young 1993).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.correlation import ranks_within, unit_length, unit_ranks
from interp.statistics.estimates import Estimates, Places
from interp.statistics.intervals import FISHER, half_split_draws
from interp.statistics.ratio import ratio
from interp.statistics.resampling import members_of, split_rows
from interp.statistics.ridge import fit_ridge
from interp.system.threads import side_by_side

from ..measures.answers import Answers
from ..measures.halves import HalfForm, HalfSplit
from ..measures.layers import ScaledRows

AXES = ("pc1", "ridge")
N_HALF_SPLITS = 20

_SILENT = 1e-6
"""Deviation relative to the length of the mean below which a layer's values are one point and its rounding."""

VARIABLES = ("evidence", "entropy", "entropy_within")


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


def movement_of_halves(
    halved: Halved, answers: Answers, rows: Bool[np.ndarray, " row"], n_draws: int, rng: np.random.Generator
) -> dict[str, Estimates]:
    """The three correlations of every axis and layer with these rows, each the mean over half splits."""
    found = [
        _correlations(coordinates.reshape(-1, len(answers))[:, held_out], answers.where(held_out))
        for coordinates, held_out in zip(halved.coordinates, halved.held_out & rows, strict=True)
    ]
    by_half_split = {name: _defined([one[name] for one in found]) for name in VARIABLES}
    return {
        name: Estimates.halved(values, FISHER).permuted(half_split_draws(values, n_draws, rng, FISHER), asks="either")
        for name, values in by_half_split.items()
    }


def _defined(found: Sequence[Float[np.ndarray, " place"]]) -> Float[np.ndarray, "split place"]:
    """The values of half splits whose held-out rows vary, or all if fewer than two do."""
    values = np.array(found)
    defined = values[np.isfinite(values).any(axis=1)]
    return defined if len(defined) > 1 else values


def _correlations(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> dict[str, Places]:
    """NaN where the coordinate or the variable never varies."""
    exact, free = answers.entropy_exact, unit_ranks(coordinates)
    within = unit_length(np.array([ranks_within(x, answers.stratum) for x in (*coordinates, exact)]))
    return {
        "evidence": _correlation(free, unit_ranks(answers.evidence[None])[0]) if answers.one_row_each
        else _mean_trend(coordinates, answers),
        "entropy": _correlation(free, unit_ranks(exact[None])[0]),
        "entropy_within": _correlation(within[:-1], within[-1]),
    }  # fmt: skip


def _correlation(x: Float[np.ndarray, "place row"], y: Float[np.ndarray, " row"]) -> Places:
    """Of centred rows of length one."""
    return np.where(x.any(axis=1) & bool(y.any()), x @ y, np.nan)


def _mean_trend(coordinates: Float[np.ndarray, "place row"], answers: Answers) -> Places:
    """Mean over units of Spearman's ρ between amount and coordinate among the rows of each."""
    trends = []
    for rows in members_of(answers.unit):
        ranks = unit_ranks(coordinates[:, rows].reshape(-1, rows.shape[1])).reshape(-1, *rows.shape)
        trends.append(np.einsum("pum,um->up", ranks, unit_ranks(answers.evidence[rows]), order="C"))
    of_units = np.concatenate(trends)
    return np.where(of_units.any(axis=0), of_units.mean(axis=0), np.nan)
