"""Ridge regression of many targets on one set of rows, the penalty of each chosen by leaving out whole prompts.

With the rows X = U S Vᵀ, from which nuisances with the orthonormal basis Q (the mean among them) were taken out,

    w(α) = V S/(S² + α) Uᵀ y        H(α) = Q Qᵀ + U S²/(S² + α) Uᵀ        e = y − H y

and the residuals of a prompt's rows p when that prompt is left out of the fit, nuisances refitted, are exactly
(I − Hₚₚ)⁻¹ eₚ: no refit is made (Allen 1974; Golub, Heath and Wahba 1979, for single rows). One decomposition of the
smaller Gram matrix serves every target and penalty. Penalties are in units of the mean of S².
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

PENALTIES = 10.0 ** np.arange(-6, 4)
"""The grid, relative to the mean squared singular value."""

_NEGLIGIBLE = 1e-10
"""Squared singular value, relative to the largest, below which an axis is rounding."""

_ALONE = 1e-9
"""1 − leverage below which a prompt alone decides its own fit, so that leaving it out is undefined."""


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
    """Which ascending eigenvalues are more than rounding, largest first; none of no rows."""
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
    loads = form.left.T @ targets
    squared = np.square(form.singular)
    scale = float(squared.mean())
    members = members_of(units)
    outside = targets - form.left @ loads
    errors = np.array([
        _left_out_error(form.left, loads, outside, squared / (squared + a * scale), nuisances, members)
        for a in PENALTIES
    ])  # fmt: skip
    penalty = PENALTIES[errors.argmin(axis=0)]
    shrunk = form.singular[:, None] / (squared[:, None] + penalty * scale)
    return RidgeFit(shrunk * loads, penalty, scale)


def members_of(units: Int[np.ndarray, " row"]) -> list[Int[np.ndarray, "unit member"]]:
    """The rows of every unit, one array for all units of the same number of rows."""
    _, codes, counts = np.unique(units, return_inverse=True, return_counts=True)
    by_unit = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    return [by_unit[starts[counts == count][:, None] + np.arange(count)] for count in np.unique(counts)]


def _left_out_error(
    left: np.ndarray, loads: np.ndarray, outside: np.ndarray, shrink: np.ndarray, nuisances: np.ndarray,
    members: list[np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Sum of squared left-out residuals of every target; units that decide their own fit are passed over.

    Targets are given as `loads` on the axes and what lies `outside` of them.
    """
    residual = left @ ((1 - shrink)[:, None] * loads)
    residual += outside
    total = np.zeros(loads.shape[1])
    for rows in members:
        if rows.shape[1] == 1:
            alone = rows[:, 0]
            kept_back = 1 - np.square(nuisances[alone]).sum(axis=1) - np.square(left[alone]) @ shrink
            usable = kept_back > _ALONE
            total += np.square(1 / kept_back[usable]) @ np.square(residual[alone[usable]])
            continue
        own = np.concatenate([nuisances[rows], left[rows] * np.sqrt(shrink)], axis=-1)
        values, vectors = np.linalg.eigh(np.eye(rows.shape[1]) - own @ own.transpose(0, 2, 1))
        usable = values[:, 0] > _ALONE
        values, vectors = values[usable, None, :], vectors[usable]
        inverse = (vectors / values) @ vectors.transpose(0, 2, 1)
        total += np.square(inverse @ residual[rows[usable]]).sum(axis=(0, 1))
    return total
