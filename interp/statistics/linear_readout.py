"""Linear readouts: what ridge from some rows says on others, and how often it is right about what is so."""

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.ridge import absolute_penalty, ridge_coefficients

PENALTY = 1e-3
"""Relative to the mean squared singular value: the same in all subspaces that are compared."""


def read_out(
    points: Float[np.ndarray, "row feature"], labels: np.ndarray, fitting: np.ndarray, penalty: float = PENALTY
) -> Float[np.ndarray, "row label"]:
    """What a ridge readout from the `fitting` rows (numbers or a mask) says of labels `[row, label]`, on all rows."""
    x, y = points[fitting], labels[fitting].astype(np.float64)
    centre, mean = x.mean(axis=0), y.mean(axis=0)
    x -= centre
    weights = ridge_coefficients(x, (y - mean).astype(x.dtype), absolute_penalty(x, penalty))
    return points @ weights + (mean - centre @ weights)


def held_out_r2(
    said: Float[np.ndarray, " row"], label: Float[np.ndarray, " row"], fitting: np.ndarray, held_out: np.ndarray
) -> float:
    """1 − squared error / that of the mean of the fitting rows, on the held-out ones; NaN where nothing varies."""
    error, most = (float(np.square(label - predicted)[held_out].sum()) for predicted in (said, label[fitting].mean()))
    return 1 - error / most if most > 0 else np.nan


def balanced_accuracy(
    said: Float[np.ndarray, "row label"],
    is_so: Bool[np.ndarray, "row label"],
    fitting: np.ndarray,
    held_out: np.ndarray,
) -> float:
    """Mean of the hits among what is so and what is not, over the labels that are both in both parts.

    The cut lies midway between the means of the two on the fitting rows.
    """
    parts = is_so[fitting], is_so[held_out]
    known = np.all([part.any(axis=0) & ~part.all(axis=0) for part in parts], axis=0)
    if not known.any():
        return np.nan
    was, now = (part[:, known] for part in parts)
    predicted, guessed = said[fitting][:, known], said[held_out][:, known]
    cut = sum((predicted * side).sum(axis=0) / side.sum(axis=0) for side in (was, ~was)) / 2
    is_hit = (guessed > cut) == now
    return float(np.mean([(is_hit & side).sum(axis=0) / side.sum(axis=0) for side in (now, ~now)]))
