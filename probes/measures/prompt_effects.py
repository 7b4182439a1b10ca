"""Statistics of effects by prompt: does one head stand out, do effects add up, is every layer needed?

Effects are bits of harm `[unit, ...]`; a unit is a prompt or a sequence. Intervals resample units.

    one head        ratio of the largest mean effect to the second largest. Null: the two exchanged in random units; p
                    is of the gap between them in bits, which is always defined. Which two they are is taken from the
                    data: exact where the two stand above all others and are alike, conservative where more are alike
    adding up       excess of a set over the sum of its members, E(S) − Σ E(h): above 0 the heads stand in for one
                    another, below 0 they do the same harm twice. Null: signs of whole units flipped
    every layer     error with a layer bypassed over the error without, the smallest of all layers; p is the largest of
                    the layers' one-sided p (intersection-union): small only where every layer is needed
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import band, maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units

from .sign_flips import flip_p, flipped_means


def harm_estimates(
    effects: Float[np.ndarray, "unit entry"], units: Units, signs: Float[np.ndarray, "permutation unit"] | None
) -> Estimates:
    """Means over units; `p` two-sided, corrected over all entries by the largest.

    Without `signs` there is no p: of a divergence, which is never negative, signs say nothing.
    """
    return replace(units.estimates(effects), p=None if signs is None else _flip_p(effects, signs))


def _flip_p(effects: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Entries that no unit feels have p = 1 and take part in no maximum."""
    felt = np.nan_to_num(effects).any(axis=0)
    p = np.ones(effects.shape[1])
    if felt.any():
        p[felt] = flip_p(effects[:, felt], signs)
    return p


@dataclass(frozen=True)
class TopHead:
    """The most harmful head beside the second; `ratio` is NaN where the second does no harm."""

    top: int
    second: int
    effect: float
    ratio: float
    share: float
    ratio_replicates: Float[np.ndarray, " resample"]
    share_replicates: Float[np.ndarray, " resample"]
    exchanged_ratio: Float[np.ndarray, " permutation"]
    p: float


@dataclass(frozen=True)
class StandsFor:
    """How many heads each measured one stands for in a sum over all heads, and in every resample of a random sample."""

    value: Float[np.ndarray, " head"]
    replicates: Float[np.ndarray, "resample head"]

    @classmethod
    def themselves(cls, n_heads: int, n_resamples: int) -> "StandsFor":
        """All heads are measured."""
        return cls(np.ones(n_heads), np.ones((n_resamples, n_heads)))


def top_head(
    effects: Float[np.ndarray, "unit head"], units: Units, signs: Float[np.ndarray, "permutation unit"],
    stands_for: StandsFor | None = None,
) -> TopHead:  # fmt: skip
    """Whether one head stands out. Resamples hold the two heads fixed."""
    stands_for = stands_for or StandsFor.themselves(effects.shape[1], len(units.weights))
    mean = mean_of_units(effects)
    second, top = (int(i) for i in np.argsort(mean, kind="stable")[-2:])
    gap = mean[top] - mean[second]
    exchanged = np.abs(flipped_means((effects[:, top] - effects[:, second])[:, None], signs))
    together, apart = mean[top] + mean[second], exchanged[:, 0]
    again = units.resampled(effects)
    return TopHead(
        top, second, float(mean[top]),
        ratio=float(ratio(mean[top], mean[second])), share=float(_share(mean[None], top, stands_for.value[None])[0]),
        ratio_replicates=ratio(again[:, top], again[:, second]),
        share_replicates=_share(again, top, stands_for.replicates),
        exchanged_ratio=ratio(together + apart, together - apart),
        p=float(maximum_statistic_p(np.array([gap]), exchanged)[0]),
    )  # fmt: skip


def _share(
    means: Float[np.ndarray, "many head"], head: int, stands_for: Float[np.ndarray, "many head"]
) -> Float[np.ndarray, " many"]:
    """Part of the summed harm of all harmful heads that one of them does."""
    harm = np.clip(means, 0, None)
    return ratio(harm[:, head], (harm * stands_for).sum(axis=1))


@dataclass(frozen=True)
class Compounding:
    """Random sets of one size: joint effects, sums of single ones, and the excess by unit (mean over sets)."""

    joint: Float[np.ndarray, "unit set"]
    summed: Float[np.ndarray, "unit set"]

    @property
    def excess(self) -> Float[np.ndarray, " unit"]:
        return (self.joint - self.summed).mean(axis=1)

    @classmethod
    def of(
        cls, joint: Float[np.ndarray, "unit set"], singles: Float[np.ndarray, "unit head"],
        members: Bool[np.ndarray, "set head"],
    ) -> "Compounding":  # fmt: skip
        return cls(joint, singles @ members.T.astype(np.float64))


@dataclass(frozen=True)
class ErrorRatio:
    """Errors under edits over the error without, one an edit; `smallest` is the edit that raises it least."""

    ratio: Float[np.ndarray, " entry"]
    low: Float[np.ndarray, " entry"]
    high: Float[np.ndarray, " entry"]
    p: Float[np.ndarray, " entry"]
    flipped: Float[np.ndarray, "permutation entry"]

    @property
    def smallest(self) -> int:
        return int(np.argmin(self.ratio))

    @property
    def p_of_all(self) -> float:
        """Of the hypothesis that some edit does not raise the error (intersection-union)."""
        return float(self.p.max())


def error_ratio(
    errors: Float[np.ndarray, "unit entry"], baseline: Float[np.ndarray, " unit"], units: Units,
    signs: Float[np.ndarray, "permutation unit"],
) -> ErrorRatio:  # fmt: skip
    """Ratios of mean errors, NaN where there is none to begin with.

    Null and p by flipping the sign of whole units' changes, one-sided, not corrected.
    """
    before = mean_of_units(baseline)
    change = errors - baseline[:, None]
    low, high = band(ratio(units.resampled(errors), units.resampled(baseline[:, None])))
    flipped = flipped_means(change, signs)
    observed = mean_of_units(change)
    p = [maximum_statistic_p(observed[[i]], flipped[:, [i]])[0] for i in range(errors.shape[1])]
    return ErrorRatio(ratio(mean_of_units(errors), before), low, high, np.array(p), 1 + ratio(flipped, before))
