"""Ridge regression of many targets on one set of rows, the penalty of each chosen by leaving out whole prompts.

With the rows X = U S Vᵀ, from which nuisances with the orthonormal basis Q (the mean among them) were taken out,

    w(α) = V S/(S² + α) Uᵀ y        H(α) = Q Qᵀ + U S²/(S² + α) Uᵀ        e = y − H y

and the residuals of a prompt's rows p when that prompt is left out of the fit, nuisances refitted, are exactly
(I − Hₚₚ)⁻¹ eₚ: no refit is made (Allen 1974; Golub, Heath and Wahba 1979, for single rows). What only the prompt itself
determines (its mean, where the nuisances give it one) is no part of these residuals. One
decomposition of the smaller Gram matrix serves every target and penalty. Penalties are in units of the mean of S².
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg

from interp.statistics.resampling import members_of

PENALTIES = 10.0 ** np.arange(-6, 4)
"""The grid, relative to the mean squared singular value."""

_NEGLIGIBLE = 1e-10
"""Squared singular value, relative to the largest, below which an axis is rounding."""

ALONE = 1e-9
"""1 − leverage below which a prompt alone determines its fit, so that leaving it out is undefined there."""


@dataclass(frozen=True)
class RowAxes:
    """The row side of a principal form: orthonormal axes of rows, largest first; axes that are rounding are dropped."""

    left: Float[np.ndarray, "row axis"]
    singular: Float[np.ndarray, " axis"]

    @classmethod
    def of_products(cls, products: Float[np.ndarray, "row row"]) -> "RowAxes":
        """From the inner products of the rows."""
        squared, vectors = np.linalg.eigh(products)
        kept = _kept(squared)
        return RowAxes(vectors[:, kept], np.sqrt(squared[kept]))


@dataclass(frozen=True)
class PrincipalForm(RowAxes):
    """Rows as left · diag(singular) · directions."""

    directions: Float[np.ndarray, "axis feature"]

    @classmethod
    def of(cls, centred: Float[np.ndarray, "row feature"]) -> "PrincipalForm":
        if centred.shape[0] <= centred.shape[1]:
            axes = RowAxes.of_products(centred @ centred.T)
            return cls(axes.left, axes.singular, (axes.left.T @ centred) / axes.singular[:, None])
        squared, vectors = np.linalg.eigh(centred.T @ centred)
        kept = _kept(squared)
        singular, vectors = np.sqrt(squared[kept]), vectors[:, kept]
        return cls((centred @ vectors) / singular, singular, vectors.T)


def _kept(squared: np.ndarray) -> np.ndarray:
    """Which ascending eigenvalues are more than rounding, largest first."""
    return np.flatnonzero(squared > _NEGLIGIBLE * squared.max(initial=0.0))[::-1]


@dataclass(frozen=True)
class RidgeFit:
    """Coefficients on the axes of a `RowAxes`, and the penalty chosen for every target: `penalty` · `scale`."""

    coefficients: Float[np.ndarray, "axis target"]
    penalty: Float[np.ndarray, " target"]
    scale: float


def fit_ridge(
    form: RowAxes,
    targets: Float[np.ndarray, "row target"],
    units: Int[np.ndarray, " row"],
    nuisances: Float[np.ndarray, "row nuisance"],
) -> RidgeFit:
    """Ridge with the penalty of `PENALTIES` whose residuals over left-out `units` are smallest.

    Rows and targets have the `nuisances` (an orthonormal basis) taken out already; the form has at least one axis.
    """
    loads, squared, members = form.left.T @ targets, np.square(form.singular), members_of(units)
    scale = float(squared.mean())
    # axes and nuisances that span all rows leave nothing of a target but rounding
    is_whole = form.left.shape[1] + nuisances.shape[1] >= len(targets)
    outside = np.zeros_like(targets) if is_whole else targets - form.left @ loads
    shrink = squared / (squared + PENALTIES[:, None] * scale)
    errors = [left_out_error(form.left, loads, outside, kept, nuisances, members) for kept in shrink]
    penalty = PENALTIES[np.argmin(errors, axis=0)]
    shrunk = form.singular[:, None] / (squared[:, None] + penalty * scale)
    return RidgeFit(shrunk * loads, penalty, scale)


def left_out_error(
    left: np.ndarray, loads: np.ndarray, outside: np.ndarray, shrink: np.ndarray, nuisances: np.ndarray,
    members: list[np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Sum of squared left-out residuals of every target, as far as other units determine them.

    Targets are given as `loads` on the axes `left` and what lies `outside` of them; a fit keeps the part `shrink` of
    each load (none of any: the nuisances alone). `members` are the rows of the units (`members_of`).
    """
    residual = left @ ((1 - shrink)[:, None] * loads)
    residual += outside
    total = np.zeros(loads.shape[1])
    for rows in members:
        own = np.concatenate([nuisances[rows], left[rows] * np.sqrt(shrink)], axis=-1)
        values, vectors = np.linalg.eigh(np.eye(rows.shape[1]) - own @ own.transpose(0, 2, 1))
        values = np.divide(1, values, out=np.zeros_like(values), where=values > ALONE)
        inverse = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
        total += np.square(inverse @ residual[rows]).sum(axis=(0, 1))
    return total


def absolute_penalty(centred: Float[np.ndarray, "row feature"], relative: float) -> float:
    """The penalty α that a relative one amounts to: times the mean of S², tr(XᵀX) / rank."""
    n, d = centred.shape
    return relative * float(np.vdot(centred, centred)) / max(1, min(n - 1, d))


def ridge_coefficients(
    centred: Float[np.ndarray, "row feature"], label: Float[np.ndarray, "row *target"], penalty: float
) -> Float[np.ndarray, "feature *target"]:
    """w = (XᵀX + α)⁻¹ Xᵀy at the penalty α, by the smaller Gram matrix; zeros where there is no penalty."""
    n, d = centred.shape
    if penalty <= 0:
        return np.zeros((d, *label.shape[1:]))
    gram = centred @ centred.T if n <= d else centred.T @ centred
    gram[np.diag_indices_from(gram)] += penalty
    return centred.T @ _solve_positive(gram, label) if n <= d else _solve_positive(gram, centred.T @ label)


def ridge_axis(
    rows: Float[np.ndarray, "row feature"], label: Float[np.ndarray, " row"], penalty: float
) -> Float[np.ndarray, " feature"]:
    """The ridge direction of rows and label about their means, of length one; zeros where nothing varies."""
    axis = ridge_coefficients(rows - rows.mean(axis=0), label - label.mean(), penalty)
    length = float(np.linalg.norm(axis))
    return axis / length if length > 0 else axis


def _solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution for a symmetric positive definite matrix, which is overwritten."""
    factor = linalg.cho_factor(matrix.T, lower=True, overwrite_a=True, check_finite=False)  # .T: in the order of LAPACK
    return np.asarray(linalg.cho_solve(factor, right, check_finite=False))
