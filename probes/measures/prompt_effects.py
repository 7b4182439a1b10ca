"""Statistics of effects by prompt: does one head stand out, and is every layer needed?

Effects are bits of harm `[unit, ...]`; a unit is a prompt or a sequence. Intervals resample units.

    one head        ratio of the largest mean effect to the second largest. Null: the two exchanged in random units; p
                    is of the gap between them in bits, which is always defined. Which two they are is taken from the
                    data: exact where the two stand above all others and are alike, conservative where more are alike
    every layer     error with a layer bypassed over the error without, the smallest of all layers; p is the largest of
                    the layers' one-sided p (intersection-union): small only where every layer is needed
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

    Without `signs` there is no p: of a divergence, which is never negative, signs say nothing.
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
    """Whether one head stands out. Resamples hold the two heads fixed.

    The share is that in the harm of all harmful heads, of which each measured one `stands_for` so many.
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
