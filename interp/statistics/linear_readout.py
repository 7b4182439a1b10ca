"""Linear readouts: ridge fitted on some rows, and its R² and accuracy on others."""

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.ridge import absolute_penalty, ridge_coefficients

PENALTY = 1e-3
"""Relative to the mean squared singular value: the same in all subspaces that are compared."""


def read_out(
    points: Float[np.ndarray, "row feature"], labels: np.ndarray, fitting: np.ndarray, penalty: float = PENALTY
) -> Float[np.ndarray, "row label"]:
    """Predictions of labels `[row, label]` at all rows by ridge fitted on the `fitting` rows (numbers or a mask)."""
    x, y = points[fitting], labels[fitting].astype(np.float64)
    centre, mean = x.mean(axis=0), y.mean(axis=0)
    x -= centre
    weights = ridge_coefficients(x, (y - mean).astype(x.dtype), absolute_penalty(x, penalty))
    return points @ weights + (mean - centre @ weights)


def held_out_r2(
    predicted: Float[np.ndarray, " row"], label: Float[np.ndarray, " row"], fitting: np.ndarray, held_out: np.ndarray
) -> float:
    """1 − squared error / that of the mean of the fitting rows, on the held-out ones; NaN where nothing varies."""
    error, most = (float(np.square(label - each)[held_out].sum()) for each in (predicted, label[fitting].mean()))
    return 1 - error / most if most > 0 else np.nan


def balanced_accuracy(
    predicted: Float[np.ndarray, "row label"],
    is_so: Bool[np.ndarray, "row label"],
    fitting: np.ndarray,
    held_out: np.ndarray,
) -> float:
    """Mean of sensitivity and specificity, over the labels with positives and negatives in both parts.

    The threshold lies midway between the means of the two on the fitting rows.
    """
    parts = is_so[fitting], is_so[held_out]
    known = np.all([part.any(axis=0) & ~part.all(axis=0) for part in parts], axis=0)
    if not known.any():
        return np.nan
    was, now = (part[:, known] for part in parts)
    fitted, others = predicted[fitting][:, known], predicted[held_out][:, known]
    threshold = sum((fitted * side).sum(axis=0) / side.sum(axis=0) for side in (was, ~was)) / 2
    is_hit = (others > threshold) == now
    return float(np.mean([(is_hit & side).sum(axis=0) / side.sum(axis=0) for side in (now, ~now)]))
