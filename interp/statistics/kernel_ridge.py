"""Ridge axes of many subsets of rows from one matrix K of all inner products.

The axis of the rows h is Xᵀc, where c is zero outside h and zero in sum, so that no subset has to be centred:

    (K + α) c = y + μ        on h, with μ such that Σ c = 0

Each K + α on h is factored in float32, at half the cost, and the residuals, taken in float64 for all subsets in one
product, are solved for again until they are those of a float64 solution (iterative refinement; Higham 2002, Accuracy
and Stability of Numerical Algorithms, chapter 12). Where α is too small beside K for float32, float64 does it all.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import linalg

from interp.statistics.ridge import solve_positive

_SINGLE = 1e-5
"""Penalty relative to the trace of K below which float32 is not tried: it bounds the condition by 1e5."""

_MAX_STEPS = 10

(_TRSV,) = linalg.get_blas_funcs(("trsv",), dtype=np.float32)


def subset_weights(
    products: Float[np.ndarray, "row row"],
    label: Float[np.ndarray, " row"],
    penalty: float,
    subsets: Sequence[np.ndarray],
) -> Float[np.ndarray, "subset row"]:
    """The weights c of all rows for each subset, given by the indices of its rows.

    They give the subset's ridge axis at the penalty α, not yet of length one.
    """
    found = _refined(products, label, penalty, subsets) if penalty > _SINGLE * float(np.trace(products)) else None
    return np.array([_direct(products, label, penalty, h) for h in subsets]) if found is None else found


def _direct(products: np.ndarray, label: np.ndarray, penalty: float, subset: np.ndarray) -> np.ndarray:
    shifted = _shifted(products, penalty, subset)
    solved = solve_positive(shifted, np.column_stack([label[subset] - label[subset].mean(), np.ones(len(subset))]))
    weights = np.zeros(len(label))
    weights[subset] = solved[:, 0] - solved[:, 1] * (solved[:, 0].sum() / solved[:, 1].sum())
    return weights


def _shifted(products: np.ndarray, penalty: float, subset: np.ndarray) -> np.ndarray:
    """K + α on a subset; symmetric, and in the order that LAPACK overwrites."""
    shifted = products.take(subset, axis=0).take(subset, axis=1)
    shifted[np.diag_indices_from(shifted)] += penalty
    return shifted.T


def _refined(
    products: np.ndarray, label: np.ndarray, penalty: float, subsets: Sequence[np.ndarray]
) -> np.ndarray | None:
    """All weights by float32 factors and float64 residuals; None where that does not settle."""
    narrow = products.astype(np.float32)
    try:
        factors = [_factor(_shifted(narrow, penalty, h)) for h in subsets]
    except linalg.LinAlgError:
        return None
    of_ones = [_solved(factor, np.ones(len(factor))) for factor in factors]
    targets = np.array([_about_mean(label, h) for h in subsets])
    weights, residual = np.zeros_like(targets), targets
    tolerance = np.sqrt(len(label)) * np.finfo(np.float64).eps * (float(np.linalg.norm(products)) + penalty)
    for _ in range(_MAX_STEPS):
        for i, (factor, ones, h) in enumerate(zip(factors, of_ones, subsets, strict=True)):
            step = _solved(factor, residual[i, h])
            weights[i, h] += step - ones * (step.sum() / ones.sum())
        residual = targets - weights @ products - penalty * weights
        residual = np.array([_about_mean(one, h) for one, h in zip(residual, subsets, strict=True)])
        if (np.linalg.norm(residual, axis=1) <= tolerance * np.linalg.norm(weights, axis=1)).all():
            return weights
    return None


def _about_mean(values: np.ndarray, subset: np.ndarray) -> np.ndarray:
    """The values of a subset about their mean there, zero elsewhere: what is left once μ is chosen."""
    kept = np.zeros_like(values)
    kept[subset] = values[subset] - values[subset].mean()
    return kept


def _factor(shifted: np.ndarray) -> np.ndarray:
    """L of the Cholesky factorisation, which overwrites the lower triangle and leaves the upper one as it is."""
    return np.asarray(linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)[0])


def _solved(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(L Lᵀ)⁻¹ of one right side in float32, by two substitutions: `cho_solve`, made for many, takes twice as long."""
    size = float(np.abs(right).max()) or 1.0
    half = _TRSV(factor, (right / size).astype(np.float32), lower=1, overwrite_x=1)
    return _TRSV(factor, half, lower=1, trans=1, overwrite_x=1).astype(np.float64) * size
