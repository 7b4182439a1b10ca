"""How well one layer of one site tells the entropies of prompts that it was not fitted on.

On the fitting half, nuisances out, rows are X = U S Vᵀ. Two axes of X read a label y there: the first principal axis
(chosen without y; only its slope and sign are fitted) and ridge. Both are applied to the judged half. The same is done
for permuted labels, so that the null has every step of the fit in it, the choice of the penalty included.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from interp.statistics.ridge import PrincipalForm, fit_ridge
from probes.measures.halves import Halves, held_out_r2
from probes.measures.nuisances import Removal
from probes.measures.places import unit

AXES = ("ridge", "pc1")


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


def read(
    points: Float[np.ndarray, "row feature"], labels: Labels, halves: Halves, removal: Removal
) -> dict[str, Reading]:
    """Both axes of one layer, fitted and judged. `points` are scaled."""
    left = removal.apply(points)
    form = PrincipalForm.of(left[halves.fitting])
    # a residual of rounding is no direction
    if len(form.singular) == 0 or form.singular[0] <= 1e-10 * np.linalg.norm(points[halves.fitting]):
        return {axis: _nothing(labels) for axis in AXES}
    coordinates = left[halves.judged] @ form.directions.T
    ridge = fit_ridge(form, labels.fitting, halves.fitting_units, removal.basis)
    first = np.zeros_like(ridge.coefficients)
    first[0] = form.left[:, 0] @ labels.fitting / form.singular[0]
    penalty = {name: float(ridge.penalty[column]) for name, column in labels.true.items()}
    judged = _judge(form, ridge.coefficients, coordinates, labels)
    return {
        "ridge": replace(judged, penalty=penalty, scale=ridge.scale, spectrum=np.square(form.singular)),
        "pc1": _judge(form, first, coordinates, labels),
    }


def _judge(form: PrincipalForm, coefficients: np.ndarray, coordinates: np.ndarray, labels: Labels) -> Reading:
    predicted = coordinates @ coefficients
    length = np.linalg.norm(coefficients, axis=0)
    cosine = np.divide(np.abs(coefficients[0]), length, out=np.full(len(length), np.nan), where=length > 0)
    return Reading(
        held_out_r2(labels.judged, predicted),
        cosine,
        {name: predicted[:, column] for name, column in labels.true.items()},
        {name: unit(coefficients[:, column] @ form.directions) for name, column in labels.true.items()},
        predicted[:, labels.columns["controls"]],
    )


def _nothing(labels: Labels) -> Reading:
    undefined = np.full(labels.fitting.shape[1], np.nan)
    return Reading(undefined, undefined, {}, {}, np.empty((len(labels.judged), 0)))
