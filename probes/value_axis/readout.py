"""How well one layer of one site tells the entropies of prompts that it was not fitted on.

On the fitting half, nuisances out, rows are X = U S Vᵀ. Two axes of X read a label y there: the first principal axis
(chosen without y; only its slope and sign are fitted) and ridge. Both are applied to the judged half. The same is done
for permuted labels, so that the null has every step of the fit in it, the choice of the penalty included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from interp.statistics.ratio import ratio
from interp.statistics.ridge import PrincipalForm, RidgeFit, RowAxes, fit_ridge

from ..measures.halves import Halves, held_out_r2
from ..measures.nuisances import Removal
from ..measures.places import ScaledRows, unit

AXES = ("ridge", "pc1")

_CANCELLED = 1e-6
"""Share of the fitting rows' squared length below which what nuisances leave is taken from the rows themselves."""


@dataclass(frozen=True)
class Labels:
    """What is read: for every target the label and its permutations, then control tasks; nuisances are out.

    `fitting` and `judged` have one column for each; `columns` says which are a target's, its true labels first, or
    the `controls`.
    """

    fitting: Float[np.ndarray, "fitted label"]
    judged: Float[np.ndarray, "judged label"]
    columns: Mapping[str, slice]

    @property
    def true(self) -> dict[str, int]:
        """The column of every target's true labels."""
        return {name: at.start for name, at in self.columns.items() if name != "controls"}


@dataclass(frozen=True)
class Reading:
    """One axis as judged: of every label R²; of true labels and control tasks the predictions.

    `axes` are the axes in scaled coordinates, one a target, of length one; `cosine` is |cos| with the first principal
    axis in those coordinates, of every label. Of ridge alone, `penalty` is the one chosen for each target relative to
    `scale`, and `spectrum` the squared singular values of the fitting rows. Where nothing varies all are NaN.
    """

    r2: Float[np.ndarray, " label"]
    cosine: Float[np.ndarray, " label"]
    predicted: Mapping[str, Float[np.ndarray, " judged"]]
    axes: Mapping[str, Float[np.ndarray, " feature"]]
    controls: Float[np.ndarray, "judged control"]
    penalty: Mapping[str, float] = field(default_factory=dict)
    scale: float = 0.0
    spectrum: Float[np.ndarray, " axis"] = field(default_factory=lambda: np.empty(0))


def make_labels(
    targets: Mapping[str, np.ndarray], controls: Float[np.ndarray, "row control"], halves: Halves, removal: Removal
) -> Labels:
    """The labels of both halves with nuisances taken out; permutations act on what the nuisances leave."""
    fitting, judged, columns = [], [], {}
    width = 1 + len(halves.orders)
    for i, (name, values) in enumerate(targets.items()):
        values = np.asarray(values, dtype=np.float64)[:, None]
        left = removal.apply(values)
        # what is left of a label that the nuisances tell exactly is rounding
        left = np.where(np.linalg.norm(left) > 1e-10 * np.linalg.norm(values), left, 0.0)
        true = left[halves.fitting]
        # a permuted residual is no residual: what nuisances explain of it goes too
        permuted = removal.apply_to_fitting(true[:, 0][halves.orders].T)
        fitting += [true, permuted]
        judged.append(np.repeat(left[halves.judged], width, axis=1))
        columns[name] = slice(i * width, (i + 1) * width)
    left = removal.apply(controls)
    fitting.append(left[halves.fitting])
    judged.append(left[halves.judged])
    columns["controls"] = slice(len(targets) * width, len(targets) * width + controls.shape[1])
    return Labels(np.hstack(fitting), np.hstack(judged), columns)


def read(rows: ScaledRows, labels: Labels, halves: Halves, removal: Removal) -> dict[str, Reading]:
    """Both axes of one layer, fitted and judged."""
    found = _split(rows, halves, removal)
    fitted = rows.points[halves.fitting]
    # a residual of rounding is no direction
    if len(found.axes.singular) == 0 or found.axes.singular[0] <= 1e-10 * np.linalg.norm(fitted):
        return {axis: _nothing(labels) for axis in AXES}
    ridge = fit_ridge(found.axes, labels.fitting, halves.fitting_units, removal.basis)
    first = found.axes.left[:, 0] @ labels.fitting / found.axes.singular[0]
    fits = {"ridge": ridge.coefficients, "pc1": first[None]}
    readings = {}
    for axis, coefficients in fits.items():
        columns = list(labels.true.values())
        weights = removal.apply_to_fitting(_on_rows(found.axes, coefficients[:, columns]))
        directions = dict(zip(labels.true, map(unit, weights.T @ fitted), strict=True))
        readings[axis] = _judge(coefficients, found.predict(coefficients), directions, labels)
    return readings | {"ridge": _with_penalties(readings["ridge"], ridge, found.axes, labels)}


@dataclass(frozen=True)
class _Split:
    """The principal axes of the fitting rows, nuisances out, and the judged rows.

    These are given by their features where the axes have directions, else by inner products with the fitting rows.
    """

    axes: RowAxes
    judged: Float[np.ndarray, "judged any"]

    def predict(self, coefficients: Float[np.ndarray, "axis label"]) -> Float[np.ndarray, "judged label"]:
        """What coefficients on the first few axes predict at the judged rows."""
        if len(coefficients) == 1:
            return (self.judged @ self._lifted(np.ones((1, 1)))) * coefficients
        return self.judged @ self._lifted(coefficients)

    def _lifted(self, coefficients: np.ndarray) -> np.ndarray:
        if isinstance(self.axes, PrincipalForm):
            return self.axes.directions[: len(coefficients)].T @ coefficients
        return _on_rows(self.axes, coefficients)


def _split(rows: ScaledRows, halves: Halves, removal: Removal) -> _Split:
    """Read off the inner products of the rows where they are known and nuisances leave enough for their precision."""
    fitting, judged = halves.fitting, halves.judged
    if rows.products is not None:
        left = removal.apply_to_products(rows.products)
        axes = RowAxes.of_products(left[fitting])
        whole = float(np.diagonal(rows.products)[fitting].sum())
        if len(axes.singular) and np.square(axes.singular[0]) > _CANCELLED * whole:
            return _Split(axes, left[judged])
    points = removal.apply(rows.points)
    form = PrincipalForm.of(points[fitting])
    return _Split(form, points[judged])


def _on_rows(axes: RowAxes, coefficients: Float[np.ndarray, "axis label"]) -> Float[np.ndarray, "fitted label"]:
    """Weights of the fitting rows that amount to coefficients on the first few axes."""
    n_axes = len(coefficients)
    return axes.left[:, :n_axes] @ (coefficients / axes.singular[:n_axes, None])


def _judge(
    coefficients: np.ndarray, predicted: np.ndarray, directions: Mapping[str, np.ndarray], labels: Labels
) -> Reading:
    return Reading(
        held_out_r2(labels.judged, predicted),
        ratio(np.abs(coefficients[0]), np.linalg.norm(coefficients, axis=0)),
        {name: predicted[:, column] for name, column in labels.true.items()},
        directions,
        predicted[:, labels.columns["controls"]],
    )


def _with_penalties(reading: Reading, ridge: RidgeFit, axes: RowAxes, labels: Labels) -> Reading:
    penalty = {name: float(ridge.penalty[column]) for name, column in labels.true.items()}
    return replace(reading, penalty=penalty, scale=ridge.scale, spectrum=np.square(axes.singular))


def _nothing(labels: Labels) -> Reading:
    undefined = np.full(labels.fitting.shape[1], np.nan)
    return Reading(undefined, undefined, {}, {}, np.empty((len(labels.judged), 0)))
