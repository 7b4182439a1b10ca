"""Independent repetitions, such as seeds or draws: how far their mean may be off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special


@dataclass(frozen=True)
class TMean:
    """The mean of repetitions, its 95 % t interval, and the p of a two-sided t test against 0.

    Fewer than two repetitions have neither interval nor p; repetitions that are all alike have no p.
    """

    value: float
    low: float
    high: float
    p: float


def t_mean(values: Sequence[float] | Float[np.ndarray, " repeat"]) -> TMean:
    """What one or more repetitions say of the mean behind them; NaN stands for what they do not say."""
    given = np.asarray(values, dtype=np.float64)
    mean, half, n = float(given.mean()), float(t_half_width(given)), len(given)
    error = float(_deviation(given) / np.sqrt(n))
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error)) if error > 0 else np.nan
    return TMean(mean, mean - half, mean + half, p)


def t_half_width(values: Float[np.ndarray, "*shape repeat"]) -> Float[np.ndarray, "*shape"]:
    """Half the 95 % t interval of the mean over the last axis, in the values' unit; NaN for fewer than two."""
    n = values.shape[-1]
    return np.asarray(special.stdtrit(n - 1, 0.975) * _deviation(values) / np.sqrt(n))


def _deviation(values: Float[np.ndarray, "*shape repeat"]) -> Float[np.ndarray, "*shape"]:
    """The standard deviation over the last axis; NaN for fewer than two, 0 where all are the same to the last bit."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.where(np.ptp(values, axis=-1) == 0, 0.0, values.std(axis=-1, ddof=1))
