"""Ridge readouts of many targets, cross-validated over whole sequences with an inner choice of the penalty.

Each fold is predicted by a fit to the other folds, with the penalty (one for all components of a belief) of least
error when each of those other folds is left out in turn. A nuisance design D (a constant, or position) is fitted
without penalty on the same rows: with D̃ its regression there, X̃ = X − D̃(X) and Ỹ = Y − D̃(Y),

    W(α) = V S/(S² + α) Uᵀ Ỹ,   X̃ = U S Vᵀ        error = ‖Ỹₕ − X̃ₕ W‖² over held-out rows

Only inner products are needed, so the rows Z = [D X] = Q R of a fold are replaced by R, its targets by QᵀY and the
length of the rest. This is exact, and makes refits on hundreds of permuted beliefs cheap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.ridge import PENALTIES, PrincipalForm

N_FOLDS = 5

_NOTHING = 1e-10


@dataclass(frozen=True)
class Folds:
    """Which fold each row belongs to; all rows of a sequence are in one."""

    code: Int[np.ndarray, " row"]
    n: int

    def rows(self, fold: int) -> Int[np.ndarray, " held"]:
        return np.flatnonzero(self.code == fold)

    def others(self, *left_out: int) -> list[int]:
        return [fold for fold in range(self.n) if fold not in left_out]


def deal(units: Int[np.ndarray, " row"], rng: np.random.Generator) -> Folds:
    """Random folds of whole sequences, `N_FOLDS` or as many as there are sequences."""
    names, codes = np.unique(units, return_inverse=True)
    n = min(N_FOLDS, len(names))
    return Folds(rng.permutation(np.arange(len(names)) % n)[codes], n)


@dataclass(frozen=True)
class Pressed:
    """The rows of a fold, or as few that have the same inner products; `beyond`: ‖y‖² that rows cannot reach."""

    design: Float[np.ndarray, "row column"]
    points: Float[np.ndarray, "row feature"]
    targets: Float[np.ndarray, "row target"]
    beyond: Float[np.ndarray, " target"]

    @classmethod
    def of(cls, design: np.ndarray, points: np.ndarray, targets: np.ndarray) -> "Pressed":
        n_columns = design.shape[1]
        if len(points) <= n_columns + points.shape[1]:
            return cls(design, points, targets, np.zeros(targets.shape[1]))
        q, r = np.linalg.qr(np.hstack([design, points]))
        reached = q.T @ targets
        beyond = np.maximum(_squares(targets) - _squares(reached), 0.0)
        return cls(r[:, :n_columns], r[:, n_columns:], reached, beyond)


def press(
    folds: Folds, design: Float[np.ndarray, "row column"], points: Float[np.ndarray, "row feature"],
    targets: Sequence[Float[np.ndarray, "_held target"]],
) -> list[Pressed]:  # fmt: skip
    """Every fold pressed; `targets` come fold by fold."""
    return [
        Pressed.of(design[rows], points[rows], mine)
        for rows, mine in zip(map(folds.rows, range(folds.n)), targets, strict=True)
    ]


def joined(parts: Sequence[Pressed]) -> Pressed:
    """Several folds as one."""
    names = "design", "points", "targets"
    design, points, targets = (np.vstack([getattr(part, name) for part in parts]) for name in names)
    return Pressed(design, points, targets, np.sum([part.beyond for part in parts], axis=0))


def pseudo_inverse(design: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "column row"]:
    """The pseudo-inverse of a design whose columns may be collinear up to rounding."""
    return np.linalg.pinv(design, rcond=_NOTHING)


@dataclass(frozen=True)
class Fit:
    """A regression on some folds: on the design, and of the rest on the points at any penalty."""

    design_points: Float[np.ndarray, "column feature"]
    design_targets: Float[np.ndarray, "column target"]
    form: PrincipalForm
    loads: Float[np.ndarray, "axis target"]

    @classmethod
    def to(cls, rows: Pressed) -> "Fit":
        inverse = pseudo_inverse(rows.design)
        design_points, design_targets = inverse @ rows.points, inverse @ rows.targets
        left = rows.points - rows.design @ design_points
        form = PrincipalForm.of(left)
        # a residual of rounding is no direction
        if len(form.singular) == 0 or form.singular[0] <= _NOTHING * np.linalg.norm(rows.points):
            form = PrincipalForm(np.zeros((len(left), 0)), np.zeros(0), np.zeros((0, left.shape[1])))
        loads = form.left.T @ (rows.targets - rows.design @ design_targets)
        return cls(design_points, design_targets, form, loads)

    def coefficients(self, penalty: Float[np.ndarray, " target"] | float) -> Float[np.ndarray, "axis target"]:
        """On the principal axes, at penalties relative to the mean squared singular value."""
        singular = self.form.singular[:, None]
        squared = np.square(singular)
        return singular / (squared + penalty * squared.sum() / max(1, len(squared))) * self.loads

    def left(self, rows: Pressed) -> tuple[np.ndarray, np.ndarray]:
        """Points and targets of some rows, without the design's part."""
        return rows.points - rows.design @ self.design_points, rows.targets - rows.design @ self.design_targets

    def errors(self, held: Pressed, n_groups: int) -> Float[np.ndarray, "penalty group"]:
        """Squared error over held-out rows at every penalty, summed over the targets of each group."""
        points, targets = self.left(held)
        coordinates = points @ self.form.directions.T
        left = (targets - coordinates @ self.coefficients(penalty) for penalty in PENALTIES)
        return np.array([(_squares(each) + held.beyond).reshape(n_groups, -1).sum(axis=1) for each in left])


@dataclass(frozen=True)
class CrossValidated:
    """Held-out errors and totals of every target, summed over folds, and predictions of the followed groups.

    `predicted` has the design's part in it; `by_design` is that part alone. `covectors` read the first group off points
    as fitted to all folds but fold 0, at the relative penalty `penalty`.
    """

    error: Float[np.ndarray, " target"]
    total: Float[np.ndarray, " target"]
    predicted: Float[np.ndarray, "row followed"]
    by_design: Float[np.ndarray, "row followed"]
    covectors: Float[np.ndarray, "feature component"]
    penalty: float


def cross_validate(
    folds: Folds, parts: Sequence[Pressed], design: np.ndarray, points: np.ndarray, n_groups: int, n_followed: int
) -> CrossValidated:  # fmt: skip
    """Every fold read by the others. Targets come in `n_groups` beliefs of equal width, the first `n_followed` of which
    are also predicted row by row.
    """
    width = parts[0].targets.shape[1] // n_groups
    followed = n_followed * width
    error, total = np.zeros((2, width * n_groups))
    predicted, by_design = np.empty((2, len(points), followed))
    covectors, first_penalty = np.empty((points.shape[1], width)), 0.0
    for fold, inner in enumerate(_inner_errors(folds, parts, n_groups)):
        fit = Fit.to(joined([parts[other] for other in folds.others(fold)]))
        penalty = PENALTIES[inner.argmin(axis=0)].repeat(width)
        coefficients = fit.coefficients(penalty)
        held_points, targets = fit.left(parts[fold])
        error += _squares(targets - held_points @ fit.form.directions.T @ coefficients) + parts[fold].beyond
        total += _squares(targets) + parts[fold].beyond
        rows = folds.rows(fold)
        by_design[rows] = design[rows] @ fit.design_targets[:, :followed]
        left = (points[rows] - design[rows] @ fit.design_points) @ fit.form.directions.T
        predicted[rows] = by_design[rows] + left @ coefficients[:, :followed]
        if fold == 0:
            covectors, first_penalty = fit.form.directions.T @ coefficients[:, :width], float(penalty[0])
    return CrossValidated(error, total, predicted, by_design, covectors, first_penalty)


def _inner_errors(folds: Folds, parts: Sequence[Pressed], n_groups: int) -> Float[np.ndarray, "fold penalty group"]:
    """For each fold the error over the other folds, each left out in turn; one fit without i and j serves both."""
    found = np.zeros((folds.n, len(PENALTIES), n_groups))
    for i in range(folds.n):
        for j in range(i):
            fit = Fit.to(joined([parts[other] for other in folds.others(i, j)]))
            found[i] += fit.errors(parts[j], n_groups)
            found[j] += fit.errors(parts[i], n_groups)
    return found


def _squares(values: np.ndarray) -> np.ndarray:
    return np.einsum("rt,rt->t", values, values)
