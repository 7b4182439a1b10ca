"""Gains that are as often losses: the null of paired differences, by flipping the sign of whole prompts.

Where a row owes nothing to what it is compared with, each prompt's difference is as likely positive as negative.
"""

import numpy as np
from jaxtyping import Float

from interp.findings import Null, Scalar
from interp.statistics.estimate import CONFIDENCE, maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units


def flipped_means(
    gain: Float[np.ndarray, "unit statistic"], signs: Float[np.ndarray, "permutation unit"]
) -> Float[np.ndarray, "permutation statistic"]:
    """The mean gain with every unit's sign as drawn; NaN units are left out."""
    present = ~np.isnan(gain)
    return ratio(signs @ np.where(present, gain, 0.0), present.sum(axis=0))


def flip_p(
    gain: Float[np.ndarray, "unit statistic"], signs: Float[np.ndarray, "permutation unit"]
) -> Float[np.ndarray, " statistic"]:
    """p of every mean gain, two-sided.

    Corrected over all of them by the largest |mean| / spread under the same signs; the spread √Σ gain² is the same
    whatever the signs, and puts loud and silent heads on one scale. A gain that is 0 in every prompt has p = 1.
    """
    length = np.sqrt(np.square(np.nan_to_num(gain)).sum(axis=0))
    n = (~np.isnan(gain)).sum(axis=0)
    scale = np.divide(length, n, out=np.ones(length.shape), where=length > 0)
    return maximum_statistic_p(np.abs(mean_of_units(gain)) / scale, np.abs(flipped_means(gain, signs)) / scale)


def gain_scalar(
    gain: Float[np.ndarray, " unit"],
    units: Units,
    signs: Float[np.ndarray, "permutation unit"],
    unit: str,
    meaning: str,
) -> Scalar:
    """The mean difference over prompts; null and p by flipping the sign of whole prompts' differences."""
    about = units.counted | {"n": int((~np.isnan(gain)).sum()), "meaning": meaning}
    method = f"percentile bootstrap over {units.drawn}s within strata"
    nobody = "no prompt had another one of its length, and of another cluster, to take keys from"
    interval = units.mean_interval(gain, method, nobody)
    if isinstance(interval, str):
        return Scalar.undefined(interval, unit, **about | {"underpowered": True})
    half = float(np.quantile(np.abs(flipped_means(gain[:, None], signs)), CONFIDENCE))
    null = Null(f"differences of whole {units.drawn}s with random signs", 0.0, (-half, half))
    return Scalar.of(mean_of_units(gain), unit, interval, null, p=flip_p(gain[:, None], signs)[0], **about)
