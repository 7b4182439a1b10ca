"""How well one layer of one site tells the entropies of prompts that it was not fitted on, over all halvings.

In each halving the fitting rows are X = U S Vᵀ, once from their mean and once within the last token. Two axes read a
label y there: the first principal axis of X from its mean (chosen without y; only its slope is fitted) and ridge,
whose penalty generalised cross-validation chooses (Golub, Heath and Wahba 1979). Exchanged labels go through the same
fit, so that the null has every step of it. Rows enter as they are; what is taken out of them is the halving's matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from interp.statistics.ratio import ratio
from interp.statistics.ridge import NEGLIGIBLE, PENALTIES, PrincipalForm
from interp.statistics.tridiagonal import Diagonal, Form, decomposed

from ..measures.halves import Halving
from ..measures.places import ScaledRows, unit

AXES = ("ridge", "pc1")
KEPT, WITHIN_TOKEN = "kept", "token"
"""The two treatments: nothing is taken out but the mean; all that the last token determines, and other nuisances."""

_CANCELLED = 1e-5
"""Norm of what a treatment leaves of the rows, relative to their own, below which it is rounding of the model's."""


@dataclass(frozen=True)
class Labels:
    """What is read under one treatment, before anything is taken out: true labels, and after them exchanged ones.

    `true` has the targets in the order of `targets` and then control tasks; `exchanged` has as many columns for each
    target in turn, in single precision.
    """

    targets: tuple[str, ...]
    true: Float[np.ndarray, "row label"]
    exchanged: Float[np.ndarray, "row exchange"]

    @property
    def n_permutations(self) -> int:
        return self.exchanged.shape[1] // len(self.targets)

    def of_target(self, target: str) -> np.ndarray:
        """The columns of a target among all of `read`: the true one, then the exchanged ones."""
        i, n_true, n = self.targets.index(target), self.true.shape[1], self.n_permutations
        return np.r_[i, n_true + i * n : n_true + (i + 1) * n]

    @property
    def controls(self) -> slice:
        return slice(len(self.targets), self.true.shape[1])


@dataclass(frozen=True)
class Part:
    """Some labels in one halving under one treatment, at fitting and at judged rows, that being taken out.

    Each label's numbers stand side by side in memory.
    """

    fitted: Float[np.ndarray, "fitted label"]
    judged: Float[np.ndarray, "judged label"]


@dataclass(frozen=True)
class Split:
    """One halving under one treatment, and the labels under it: the true ones, then the exchanged ones."""

    halving: Halving
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, halving: Halving, labels: Labels) -> "Split":
        if not halving.is_usable:
            return cls(halving, tuple(Part(x[:0], x[:0]) for x in (labels.true, labels.exchanged)))
        true, exchanged = (Part(*map(np.asfortranarray, halving.apply(x))) for x in (labels.true, labels.exchanged))
        for left in (true.fitted, true.judged):
            # what is left of a label that is taken out whole is rounding
            left[:, np.linalg.norm(left, axis=0) <= 1e-10 * np.linalg.norm(labels.true, axis=0)] = 0.0
        return cls(halving, (true, exchanged))

    @property
    def fitted(self) -> Float[np.ndarray, "fitted label"]:
        """All labels at the fitting rows, in double precision."""
        return np.concatenate([part.fitted.T for part in self.parts]).T

    @property
    def judged(self) -> Float[np.ndarray, "judged label"]:
        return np.concatenate([part.judged.T for part in self.parts]).T

    @cached_property
    def squares(self) -> tuple[Float[np.ndarray, " label"], Float[np.ndarray, " label"]]:
        """Sums of squares at fitting and at judged rows."""
        return np.square(self.fitted).sum(axis=0), np.square(self.judged).sum(axis=0)

    @cached_property
    def judged_sum(self) -> Float[np.ndarray, " label"]:
        return self.judged.sum(axis=0)


@dataclass(frozen=True)
class Read:
    """Every label of one treatment as one axis reads it: R² and correlation on judged rows, one row a halving.

    `fit` is the R² that cross-validation expects on the fitting rows: by it a layer can be chosen without the judged
    ones. All are NaN where a halving cannot be read, or a treatment leaves nothing of the rows (`is_void`).
    """

    r2: Float[np.ndarray, "halving label"]
    correlation: Float[np.ndarray, "halving label"]
    fit: Float[np.ndarray, "halving label"]
    is_void: bool


@dataclass(frozen=True)
class Axis:
    """An axis of the first halving, nothing taken out but the mean, at the first target.

    `direction` is in scaled coordinates, of length one; `predicted` are the judged rows; `cosine` is |cos| with the
    first principal axis.
    """

    direction: Float[np.ndarray, " feature"]
    predicted: Float[np.ndarray, " judged"]
    cosine: float


@dataclass(frozen=True)
class PlaceRead:
    """What was read at one place, by treatment and axis, and the axes to keep; none where nothing varies.

    The ridge axis has its `penalty`, relative to `scale`, the mean of the squared singular values in `spectrum`.
    """

    read: Mapping[tuple[str, str], Read]
    axes: Mapping[str, Axis]
    penalty: float
    scale: float
    spectrum: Float[np.ndarray, " axis"]


def read_place(rows: ScaledRows, splits: Mapping[str, Sequence[Split]]) -> PlaceRead:
    """Both axes under every treatment, in all halvings."""
    found: dict[tuple[str, str], list[_Scores]] = {(t, axis): [] for t in splits for axis in AXES}
    first = None
    for h, split in enumerate(splits[KEPT]):
        whole = _Ridge.of(rows, split.halving)
        first = whole if h == 0 else first
        along = rows.points[:, :0] if whole is None else whole.along_first(rows, split.halving)
        for treatment, halvings in splits.items():
            mine = halvings[h]
            ridge = whole if treatment == KEPT else _Ridge.of(rows, mine.halving)
            found[treatment, "ridge"].append(_scores(ridge, mine))
            found[treatment, "pc1"].append(_scores(_Line.of(along, mine.halving), mine))
    read = {key: _together(scores) for key, scores in found.items()}
    return _with_axes(read, first, splits[KEPT][0], rows)


@dataclass(frozen=True)
class _Sums:
    """Of the predictions at judged rows: products with the labels, squares, means; and the R² expected beforehand."""

    products: Float[np.ndarray, " label"]
    squares: Float[np.ndarray, " label"]
    means: Float[np.ndarray, " label"]
    fit: Float[np.ndarray, " label"]


@dataclass(frozen=True)
class _Ridge:
    """Ridge on the fitting rows of a halving, of whose inner products, as what is taken out leaves them, it has a form.

    What a halving takes out is linear in the rows. Where features outnumber fitting rows it is therefore taken out of
    the rows' inner products, on either side. The axes that are taken out have the eigenvalue `shift` in the form, so
    that rounding there is not mistaken for what is left. Else the form is of the features' axes, and `left` takes these
    to the fitting rows. `onto` takes weights of the rows (or axes) to the judged rows, `scale` is the mean of the
    squared singular values.
    """

    form: Form
    left: Float[np.ndarray, "fitted axis"] | None
    onto: Float[np.ndarray, "axis judged"]
    scale: float
    n_free: int
    shift: float

    @classmethod
    def of(cls, rows: ScaledRows, halving: Halving) -> "_Ridge | None":
        """None where the halving cannot be read, or what is taken out leaves nothing of the rows but rounding."""
        if not halving.is_usable:
            return None
        least = _CANCELLED * float(np.linalg.norm(rows.points[halving.fitting]))
        by_features = len(halving.fitting) > rows.points.shape[1]
        if rows.products is None or by_features:
            fitted, judged = halving.apply(rows.points)
            if np.linalg.norm(fitted) <= least:
                return None
            if by_features:
                return cls._of_features(fitted, judged, halving.n_free)
            products, across = fitted @ fitted.T, fitted @ judged.T
        else:
            fitted, judged = halving.apply(rows.products.take(halving.fitting, axis=1))
            products, across = halving.at_fitting(fitted.T), halving.at_fitting(judged.T)
        total = float(np.trace(products))
        if np.sqrt(max(0.0, total)) <= least:
            return None
        shift = total / halving.n_free / 2  # below the largest eigenvalue, whatever the others are
        form = decomposed(products + shift * halving.taken)
        n_axes = form.n_above(NEGLIGIBLE * form.leading[0]) - (len(products) - halving.n_free)
        return cls(form, None, across, total / n_axes, halving.n_free, shift)

    @classmethod
    def _of_features(cls, fitted: np.ndarray, judged: np.ndarray, n_free: int) -> "_Ridge":
        axes = PrincipalForm.of(fitted)
        squared, onto = np.square(axes.singular), axes.singular[:, None] * (axes.directions @ judged.T)
        return cls(Diagonal(squared[::-1]), axes.left[:, ::-1], onto[::-1], float(squared.mean()), n_free, 0.0)

    @property
    def n_taken(self) -> int:
        """Axes of the form that are taken out of the rows; below 0, what is free in these and no axis of it."""
        n_axes = len(self.onto)
        return n_axes - self.n_free if self.left is None else min(0, n_axes - self.n_free)

    def sums(self, split: Split) -> _Sums:
        solution, fit, _ = self.solve(split.fitted, split.squares[0])
        predicted = self.predicted(solution)
        products, squares = (np.einsum("rl,rl->l", predicted, x) for x in (split.judged, predicted))
        return _Sums(products, squares, predicted.mean(axis=0), fit)

    def solve(
        self, labels: Float[np.ndarray, "fitted label"], squares: Float[np.ndarray, " label"]
    ) -> tuple[Float[np.ndarray, "axis label"], Float[np.ndarray, " label"], Float[np.ndarray, " label"]]:
        """(T + α)⁻¹ Qᵀ y at the penalty of least generalised cross-validation error, Σe² / (n − edf)², of every label.

        Beside it the R² that is expected of it, and the penalty relative to `scale`.
        """
        loads = self.loads(labels)
        # axes that span all that is free leave nothing outside but rounding, which small penalties would be chosen by
        outside = (squares - np.square(loads).sum(axis=0)).clip(0) if self.n_taken < 0 else 0.0
        errors = np.array([self._error(loads, outside, penalty) for penalty in PENALTIES * self.scale])
        best = errors.argmin(axis=0)
        fit = 1 - self.n_free**2 * ratio(errors[best, np.arange(len(best))], squares)
        solution = np.empty_like(loads)
        for i in np.unique(best):
            solution[:, best == i] = self.form.solved(loads[:, best == i], PENALTIES[i] * self.scale)
        return solution, fit, PENALTIES[best]

    def loads(self, labels: Float[np.ndarray, "fitted label"]) -> Float[np.ndarray, "axis label"]:
        return self.form.turned(labels if self.left is None else self.left.T @ labels)

    def _error(self, loads: np.ndarray, outside: np.ndarray | float, penalty: float) -> Float[np.ndarray, " label"]:
        """From residuals e = α (K + α)⁻¹ y and the freedom n − edf = α tr (K + α)⁻¹."""
        squares, trace = self.form.squares(loads, penalty)
        free = penalty * (trace - self.n_taken / (self.shift + penalty))
        return (outside + penalty**2 * squares) / free**2

    def predicted(self, solution: Float[np.ndarray, "axis label"]) -> Float[np.ndarray, "judged label"]:
        return (self.form.turned_back(solution).T @ self.onto).T

    def weights(self, solution: Float[np.ndarray, " axis"]) -> Float[np.ndarray, " fitted"]:
        """The weights of the fitting rows that make up the direction of a solution."""
        turned = self.form.turned_back(solution[:, None])
        return (turned if self.left is None else self.left @ turned)[:, 0]

    def along_first(self, rows: ScaledRows, halving: Halving) -> Float[np.ndarray, "row 1"]:
        """All rows along the first principal axis, up to a constant."""
        squared, vector = self.form.leading
        weights = np.zeros((len(rows.points), 1))
        weights[halving.fitting, 0] = self.weights(vector / np.sqrt(squared))
        if rows.products is not None:
            return rows.products @ weights
        return rows.points @ (rows.points.T @ weights)

    def spectrum(self) -> Float[np.ndarray, " axis"]:
        """The squared singular values that are more than rounding, largest first."""
        found = self.form.spectrum
        found = np.delete(found, np.abs(found - self.shift).argsort()[: max(0, self.n_taken)])
        return found[found > NEGLIGIBLE * found[0]]

    def cosine_with_first(self, solution: Float[np.ndarray, " axis"]) -> float:
        """|cos| between the direction of a solution and the first principal axis."""
        squared, vector = self.form.leading
        length = np.sqrt(solution @ self.form.times(solution))
        return float(ratio(np.abs(np.sqrt(squared) * (vector @ solution)), length).item())


@dataclass(frozen=True)
class _Line:
    """What is left of one coordinate: labels are read by their slope on it alone."""

    fitted: Float[np.ndarray, " fitted"]
    judged: Float[np.ndarray, " judged"]

    @classmethod
    def of(cls, along: Float[np.ndarray, "row any"], halving: Halving) -> "_Line | None":
        """Of no coordinate or one; None under the same conditions as a `_Ridge`."""
        if not halving.is_usable:
            return None
        fitted, judged = halving.apply(along)
        least = _CANCELLED * float(np.linalg.norm(along[halving.fitting]))
        return None if np.linalg.norm(fitted) <= least else cls(fitted[:, 0], judged[:, 0])

    def sums(self, split: Split) -> _Sums:
        """No layer is chosen by this axis: nothing is expected beforehand."""
        slopes = self.fitted @ split.fitted / (self.fitted @ self.fitted)
        products, square = slopes * (self.judged @ split.judged), self.judged @ self.judged
        return _Sums(products, np.square(slopes) * square, slopes * self.judged.mean(), np.full(len(slopes), np.nan))


@dataclass(frozen=True)
class _Scores:
    """One halving of a `Read`."""

    r2: Float[np.ndarray, " label"]
    correlation: Float[np.ndarray, " label"]
    fit: Float[np.ndarray, " label"]
    is_void: bool


def _scores(readout: _Ridge | _Line | None, split: Split) -> _Scores:
    """R² and correlation of the predictions at judged rows."""
    if readout is None:
        nothing = np.full(sum(part.fitted.shape[1] for part in split.parts), np.nan)
        return _Scores(nothing, nothing, nothing, split.halving.is_usable)
    told, total, n = readout.sums(split), split.squares[1], len(split.halving.judged)
    r2 = 1 - ratio(total - 2 * told.products + told.squares, total)
    label_means = split.judged_sum / n
    spread = (told.squares - n * np.square(told.means)).clip(0) * (total - n * np.square(label_means)).clip(0)
    correlation = ratio(told.products - n * told.means * label_means, np.sqrt(spread))
    return _Scores(r2, correlation, told.fit, is_void=False)


def _together(scores: Sequence[_Scores]) -> Read:
    r2, correlation, fit = (np.array([getattr(s, name) for s in scores]) for name in ("r2", "correlation", "fit"))
    return Read(r2, correlation, fit, any(s.is_void for s in scores))


def _with_axes(read: Mapping[tuple[str, str], Read], ridge: _Ridge | None, split: Split, rows: ScaledRows) -> PlaceRead:
    """The axes of one halving for the first label."""
    if ridge is None:
        return PlaceRead(read, {}, np.nan, 0.0, np.empty(0))
    squared, vector = ridge.form.leading
    label = split.parts[0].fitted[:, :1]
    solution, _, penalty = ridge.solve(label, np.square(label).sum(axis=0))
    first = vector[:, None] * (vector @ ridge.loads(label) / squared)
    fitted, axes = split.halving.apply(rows.points)[0], {}
    for axis, mine in (("ridge", solution), ("pc1", first)):
        direction = unit(fitted.T @ ridge.weights(mine[:, 0]))
        axes[axis] = Axis(direction, ridge.predicted(mine)[:, 0], ridge.cosine_with_first(mine[:, 0]))
    return PlaceRead(read, axes, float(penalty[0]), ridge.scale, ridge.spectrum())
