"""Statistics of effects by prompt: does one head matter most, and is every layer needed?

Effects are bits of harm `[unit, ...]`, where a unit is a prompt or a sequence. Intervals resample clusters of units.

    one head        ratio of the largest mean effect to the second largest. Null: the two swapped in random units; p is
                    of their difference in bits, which is always defined. The two are chosen from the data: exact if
                    they are equal and above all others, conservative if more are equal
    every layer     smallest ratio, over layers, of the error with a layer bypassed to that without; p is the largest
                    one-sided p of all layers (intersection-union): small only if every layer is needed
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units

from .sign_flips import flip_p, flipped_means


def harm_estimates(
    effects: Float[np.ndarray, "unit entry"], units: Units, signs: Float[np.ndarray, "permutation unit"] | None
) -> Estimates:
    """Means over units; `p` two-sided, corrected over all entries by the largest.

    Without `signs` there is no p: a divergence is never negative.
    """
    return replace(units.estimates(effects), p=None if signs is None else flip_p(effects, signs))


@dataclass(frozen=True)
class TopHead:
    """The most harmful head beside the second; `ratio` is NaN where the second does no harm.

    Ratio and share are as measured, and then in every resample.
    """

    top: int
    second: int
    ratio: Float[np.ndarray, " one_and_resamples"]
    share: Float[np.ndarray, " one_and_resamples"]
    permuted_ratio: Float[np.ndarray, " permutation"]
    p: float


def top_head(
    effects: Float[np.ndarray, "unit head"], units: Units, signs: Float[np.ndarray, "permutation unit"],
    stands_for: Float[np.ndarray, "one_and_resamples head"] | float = 1.0,
) -> TopHead:  # fmt: skip
    """Whether one head matters more than the second; resamples hold the two fixed.

    The share is of the harm of all harmful heads, each measured one weighted by how many it `stands_for`.
    """
    means = np.vstack([mean_of_units(effects), units.resampled(effects)])
    second, top = (int(i) for i in np.argsort(means[0], kind="stable")[-2:])
    harm, (first, other) = means.clip(0), means[0, [top, second]]
    permuted = np.abs(flipped_means((effects[:, top] - effects[:, second])[:, None], signs))
    together, apart = first + other, permuted[:, 0]
    return TopHead(
        top, second,
        ratio(means[:, top], means[:, second]),
        ratio(harm[:, top], (harm * stands_for).sum(axis=1)),
        ratio(together + apart, together - apart),
        float(maximum_statistic_p(np.array([first - other]), permuted)[0]),
    )  # fmt: skip


def error_ratio(
    errors: Float[np.ndarray, "unit entry"], baseline: Float[np.ndarray, " unit"], units: Units,
    signs: Float[np.ndarray, "permutation unit"],
) -> Estimates:  # fmt: skip
    """Ratios of mean errors under edits to the mean error without, NaN where there is none to begin with.

    Null and p by flipping the sign of whole units' changes, one-sided, not corrected.
    """
    before, change = mean_of_units(baseline), errors - baseline[:, None]
    observed, flipped = mean_of_units(change), flipped_means(change, signs)
    p = [maximum_statistic_p(observed[[i]], flipped[:, [i]])[0] for i in range(errors.shape[1])]
    value = ratio(mean_of_units(errors), before)
    found = Estimates.resampled(value, ratio(units.resampled(errors), units.resampled(baseline[:, None])))
    return units.about(found).permuted(1 + ratio(flipped, before), np.array(p))
