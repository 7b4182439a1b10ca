"""Sign-flip tests of paired differences: under the null, each prompt's difference has a random sign."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import CONFIDENCE, maximum_statistic_p
from interp.statistics.quantities import Quantity
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, counted, mean_of_units


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

    Corrected over all by the largest |mean| / spread under the same signs, where the spread √Σ gain² does not depend on
    the signs. A gain that is 0 in every prompt has p = 1.
    """
    length = np.sqrt(np.square(np.nan_to_num(gain)).sum(axis=0))
    n = (~np.isnan(gain)).sum(axis=0)
    scale = np.divide(length, n, out=np.ones(length.shape), where=length > 0)
    return maximum_statistic_p(np.abs(mean_of_units(gain)) / scale, np.abs(flipped_means(gain, signs)) / scale)


def harm_estimates(
    effects: Float[np.ndarray, "unit entry"], units: Units, signs: Float[np.ndarray, "permutation unit"] | None
) -> Estimates:
    """Means over units; `p` two-sided, corrected over all entries by the largest.

    Without `signs` there is no p: a divergence is never negative.
    """
    return replace(units.estimates(effects), p=None if signs is None else flip_p(effects, signs))


MEAN_METHOD = "percentile bootstrap over {drawn}s within strata"


def gain(unit: str, meaning: str, **marks: Any) -> Quantity:
    """A mean difference over prompts, declared."""
    null = "the difference of each {drawn} with a random sign"
    return Quantity(unit, meaning, null, MEAN_METHOD, asks="either", **marks)


def gain_estimates(
    gain: Float[np.ndarray, " unit"], units: Units, signs: Float[np.ndarray, "permutation unit"]
) -> Estimates:
    """The mean difference over prompts; null and p by flipping the sign of whole prompts' differences."""
    nobody = "no prompt has another one of equal length, from another cluster, whose keys could be used"
    known = ~np.isnan(gain)
    found = replace(units.estimates(gain), about=counted(units.index[known], units.cluster[known], units.name))
    if np.isnan(found.value[0]):
        return replace(found, why=nobody)
    half = np.quantile(np.abs(flipped_means(gain[:, None], signs)), CONFIDENCE)
    return found.against(np.array([[0.0], [-half], [half]]), flip_p(gain[:, None], signs))
