"""Intervals, bands of null distributions and p-values, computed from replicates.

The confidence level of 95 % is set here alone. Replicates are bootstrap resamples, half splits, repetitions or draws of
a null (`interp.statistics.resampling`, `jackknife`, `nulls`). Intervals of correlations are symmetric on Fisher's z
scale, those of shares of variance on the scale of log(1 − R²) (`Scale`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

CONFIDENCE = 0.95

TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
NORMAL = float(special.ndtri(TAILS[1]))
"""Half the width of a 95 % interval, in known standard errors."""

Bounds = tuple[float, float]


def t_quantile(n: int | float) -> float:
    """Half the width of a 95 % interval, in standard errors estimated from `n` replicates."""
    return float(special.stdtrit(n - 1, TAILS[1]))


def share_bounds(k: int, n: int, confidence: float = CONFIDENCE) -> Bounds:
    """The interval of a probability, given `k` successes in `n` independent trials (Clopper and Pearson 1934)."""
    low = float(special.betaincinv(k, n - k + 1, (1 - confidence) / 2)) if k else 0.0
    return low, float(special.betaincinv(k + 1, n - k, (1 + confidence) / 2)) if k < n else 1.0


def count_band(n: int, p: float) -> Bounds:
    """The central 95 % of the number of successes in `n` independent trials of probability `p`."""
    counts = np.arange(n + 1)
    low, high = (int(np.searchsorted(special.bdtr(counts, n, p), tail)) for tail in TAILS)
    return float(low), float(high)


@dataclass(frozen=True)
class Scale:
    """A scale on which intervals are symmetric: the transformation `to` it, and `back`."""

    to: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray], np.ndarray]

    def about(self, value: float, half: float) -> Bounds | None:
        """The interval of this half width on the scale; None where it has no width or the value is at a bound."""
        centre = self.to(np.asarray(value, dtype=np.float64))
        if not half > 0 or not np.isfinite(centre):
            return None
        low, high = np.sort(self.back(np.array([centre - half, centre + half]))).tolist()
        return low, high


def _quiet(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """The function, infinite or NaN at a bound and beyond it, without a warning."""

    def of(values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray(function(values))

    return of


PLAIN = Scale(lambda x: x, lambda x: x)
FISHER = Scale(_quiet(np.arctanh), np.tanh)
UNEXPLAINED = Scale(_quiet(lambda r2: np.log(1 - r2)), _quiet(lambda x: 1 - np.exp(x)))
"""log(1 − R²)."""


def band(replicates: Float[np.ndarray, "resample *rest"]) -> Float[np.ndarray, "bound *rest"]:
    """The central 95 % of replicates; NaN where none is defined."""
    undefined = np.isnan(replicates)
    if not undefined.any():
        return np.quantile(replicates, TAILS, axis=0)
    nothing = undefined.all(axis=0)
    return np.where(nothing, np.nan, np.nanquantile(np.where(nothing, 0.0, replicates), TAILS, axis=0))


def normal_interval(
    value: float, replicates: Float[np.ndarray, " resample"], scale: Scale = PLAIN, least: float = 0.0
) -> Bounds | None:
    """± normal quantile × bootstrap error on a scale, never narrower to either side than `least` there.

    None where no resample differs.
    """
    moved = scale.to(np.asarray(replicates, dtype=np.float64))
    moved = moved[np.isfinite(moved)]
    half = NORMAL * float(moved.std(ddof=1)) if len(moved) > 1 else 0.0
    return scale.about(value, max(half, least) if half > 0 else 0.0)


def chance_half_width(permuted: Float[np.ndarray, " permutation"]) -> float:
    """Half the width of the 95 % interval of log(1 − R²) over refits on permuted labels.

    Without an effect, a fit predicts nearly the mean in most samples and something else in a few, so that a single
    sample underestimates its own scatter. Refits on permuted labels show it.
    """
    unexplained = 1 - permuted[permuted < 1]
    return NORMAL * float(np.log(unexplained).std(ddof=1)) if len(unexplained) > 1 else 0.0


def half_split_interval(values: Float[np.ndarray, " split"], scale: Scale = PLAIN, least: float = 0.0) -> Bounds | None:
    """The interval of a mean over half splits on a scale, t √(1/R + held out/fitted) s, with halves of equal size.

    It contains the scatter of refitting: the corrected resampled t (Nadeau and Bengio 2003, doi
    10.1023/A:1024068626366). Never narrower to either side than `least`; None without scatter.
    """
    moved = scale.to(np.asarray(values, dtype=np.float64))
    if not np.isfinite(moved).all():
        return None
    n = len(moved)
    half = t_quantile(n) * float(np.sqrt(1 / n + 1) * moved.std(ddof=1))
    return scale.about(float(values.mean()), max(half, least) if half > 0 else 0.0)


def half_split_draws(
    values: Float[np.ndarray, "split place"], n: int, rng: np.random.Generator, scale: Scale = PLAIN
) -> Float[np.ndarray, "draw place"]:
    """Draws of means over half splits whose true value is 0, for all places at once.

    The errors are those of `half_split_interval`: each draw mixes the deviations of the half splits, so that places
    stay correlated, and every place follows a t distribution with the factor √(1/R + 1) for refitting.
    """
    moved, r = scale.to(np.asarray(values, dtype=np.float64)), len(values)
    moved = np.where(np.isfinite(moved).all(axis=0), moved, 0.0)  # at a bound, or undefined: without scatter
    deviations = (moved - moved.mean(axis=0)) / np.sqrt(r - 1)
    spread = np.sqrt(rng.chisquare(r - 1, (n, 1)) / (r - 1))
    return scale.back(np.sqrt(1 / r + 1) * (rng.standard_normal((n, r)) @ deviations) / spread)


@dataclass(frozen=True)
class TMean:
    """The mean of repetitions, its 95 % t interval, and the p of a two-sided t test against 0.

    Fewer than two repetitions have neither interval nor p; equal repetitions have no p.
    """

    value: float
    low: float
    high: float
    p: float


def t_mean(values: Sequence[float] | Float[np.ndarray, " repeat"]) -> TMean:
    """The mean of independent repetitions (seeds, draws) with interval and p; NaN where there are too few for them."""
    given = np.asarray(values, dtype=np.float64)
    mean, half, n = float(given.mean()), float(t_half_width(given)), len(given)
    error = float(_deviation(given) / np.sqrt(n))
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error)) if error > 0 else np.nan
    return TMean(mean, mean - half, mean + half, p)


def t_half_width(values: Float[np.ndarray, "*shape repeat"]) -> Float[np.ndarray, "*shape"]:
    """Half the 95 % t interval of the mean over the last axis, in the values' unit; NaN for fewer than two."""
    n = values.shape[-1]
    return np.asarray(special.stdtrit(n - 1, TAILS[1]) * _deviation(values) / np.sqrt(n))


def _deviation(values: Float[np.ndarray, "*shape repeat"]) -> Float[np.ndarray, "*shape"]:
    """The standard deviation over the last axis; NaN for fewer than two, 0 where all are the same to the last bit."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.where(np.ptp(values, axis=-1) == 0, 0.0, values.std(axis=-1, ddof=1))


def prediction_band(draws: Float[np.ndarray, "draw *place"]) -> Float[np.ndarray, "value_low_high *place"]:
    """Mean of the draws and the interval in which 95 % of further draws would fall, from a t distribution.

    A prediction interval, mean ± t s √(1 + 1/k): with k draws it neither needs k to be large nor ends at the
    most extreme of them.
    """
    k, mean = len(draws), draws.mean(axis=0)
    half = t_quantile(k) * draws.std(axis=0, ddof=1) * (1 + 1 / k) ** 0.5
    return np.array([mean, mean - half, mean + half])


def maximum_statistic_p(
    observed: Float[np.ndarray, " statistic"], permuted: Float[np.ndarray, "permutation statistic"]
) -> Float[np.ndarray, " statistic"]:
    """p = (1 + #{largest of a permutation ≥ observed}) / (1 + permutations) for each statistic; large means extreme.

    The permutations must be the same for all statistics, which then may depend on one another in any way (Westfall
    and Young 1993). A statistic that is NaN has p = NaN and takes part in no maximum.
    """
    usable = ~np.isnan(observed)
    largest = np.max(permuted[:, usable], axis=1, initial=-np.inf)
    # equal up to rounding counts as reached, or the identity among few permutations would be missed
    slack = 1e-12 * np.maximum(1.0, np.abs(np.where(usable, observed, 0.0)))
    reached = (largest[:, None] >= observed - slack).sum(axis=0)
    return np.where(usable, (1 + reached) / (1 + len(permuted)), np.nan)


def excess(
    observed: Float[np.ndarray, " statistic"], permuted: Float[np.ndarray, "permutation statistic"]
) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, "permutation statistic"]]:
    """Observed and permuted values as z-scores, by mean and standard deviation of each statistic's permutations.

    Puts statistics with different null distributions on one scale before their maximum is taken. The observed value
    counts as one of the permutations, so that all remain exchangeable under the null. Without spread, both are 0.
    """
    together = np.vstack([observed, permuted])
    mean, spread = together.mean(axis=0), together.std(axis=0)
    moved = np.divide(together - mean, spread, out=np.zeros_like(together), where=spread > 1e-12 * np.abs(mean))
    moved[:, np.isnan(observed)] = np.nan
    return moved[0], moved[1:]
