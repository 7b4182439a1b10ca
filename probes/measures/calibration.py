"""How close a model's answers come to the exact posterior: entropy error, divergence, skill and slope.

Among the outcomes, the model's posterior is q and the exact one p, with entropies H_model and H_Bayes.

    entropy error   mean |H_model − H_Bayes|            skill      1 − error / error of the best constant
    divergence      mean KL(p ‖ q)                      KL skill   1 − KL / mean KL(p ‖ mean p)
    slope           of the model's log-odds on the exact ones: 1 for Bayes' rule, 0 without any use of evidence

The best constant is the median of H_Bayes, and mean p the best single distribution. With two outcomes the slope has an
intercept, which absorbs a preference for one word; with more it is Σ x·y / Σ x·x over the possible outcomes, where x =
log2 p and y = log2 q are centred in each row. Null: posteriors permuted within strata.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int, Num

from interp.findings import Asks
from interp.information import cross_entropy_bits, entropy_bits, kl_bits
from interp.statistics.correlation import resampled_correlations, unit_length
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantity
from interp.statistics.ratio import ratio

from .answers import Answers
from .halves import Groups
from .target import steady

_OF_SKILL = "log(1 − skill) bootstrap over {unit}s"


def _number(
    unit: str, asks: Asks, meaning: str, null: str = "posteriors permuted between {unit}s of equal evidence",
    *, method: str = "percentile bootstrap over {unit}s", is_headline: bool = False,
) -> Quantity:  # fmt: skip
    return Quantity(unit, meaning, null, method, "no resample differs", asks, is_headline=is_headline)


CALIBRATION = {
    "slope": _number(
        "1", "above",
        "bits of the model's log-odds per bit of exact log-odds; 1 is Bayes' rule, 0 ignores the evidence",
        is_headline=True,
    ),
    "skill": _number(
        "1", "above",
        "share of the best constant's entropy error that the model avoids; 0 is a constant, 1 is Bayes' rule",
        method=_OF_SKILL, is_headline=True,
    ),
    "kl_skill": _number(
        "1", "above",
        "share of the KL of the best single distribution that the model avoids; 0 is that one, 1 is Bayes' rule",
        method=_OF_SKILL, is_headline=True,
    ),
    "outcome_mass": _number(
        "fraction", "nothing", "total probability of all outcomes, over the whole vocabulary",
        "uniform over the vocabulary", is_headline=True,
    ),
    "entropy_error": _number(
        "bits", "below", "mean distance of the entropy of the model's posterior from that of the exact one"
    ),
    "kl": _number("bits", "below", "KL of the model's posterior from the exact one, over the outcomes"),
    "label_bias": _number(
        "bits", "nothing", "log-odds for the label with the smaller token id when the evidence is balanced",
        "0 without a preference; each word had both roles, so the slope does not contain it",
    ),
    "entropy_correlation": _number(
        "1", "above", "Pearson correlation of the entropies of the model's and the exact posterior"
    ),
}  # fmt: skip
"""The numbers, headlines first; slots: `{unit}`, the resampled unit; `{amount}`, the column of the evidence."""


def calibration(
    answers: Answers, orders: Int[np.ndarray, "permutation row"], counts: Num[np.ndarray, "resample row"],
    vocab_size: int,
) -> dict[str, Estimates]:  # fmt: skip
    """Every number of `CALIBRATION` for the rows of one condition; `orders` permute posteriors, `counts` resample."""
    weights, once = counts / counts.sum(axis=1, keepdims=True), np.ones((1, len(answers)))
    exact, model, best = answers.entropy_exact, answers.entropy_model, kl_of_best_single(answers)
    error, constant = np.abs(model - exact), np.abs(np.median(exact) - exact)
    slopes, even = Slopes(answers), "the exact odds never differ between possible outcomes: there is nothing to weigh"
    slope = _resampled(slopes.value(), slopes.resampled(counts), even)
    if slopes.is_one_pair:
        bias = _resampled(slopes.intercept(once)[0], slopes.intercept(counts), even)
    else:
        several = "defined for one pair of outcomes, the same in all prompts"
        bias = Estimates.bare(np.array([np.nan]), why=even if np.isnan(slope.value[0]) else several)
    x, y = unit_length(np.stack([steady(model), exact]))
    rho, of_rho = x @ y if x.any() and y.any() else np.nan, resampled_correlations(x[None], y, counts)[0]
    mass, share = np.exp2(answers.log_mass), answers.posterior.shape[1] / vocab_size
    found = {
        "entropy_error": _resampled(error.mean(), weights @ error),
        "skill": _skill(error, constant, counts),
        "kl": _resampled(answers.kl.mean(), weights @ answers.kl),
        "kl_skill": _skill(answers.kl, best, counts),
        "slope": slope,
        "label_bias": bias,
        "outcome_mass": _resampled(mass.mean(), weights @ mass).against(np.full((3, 1), share)),
        "entropy_correlation": _resampled(rho, of_rho, "one of the two entropies never varies"),
    }
    errors = np.array([np.abs(model - exact[order]).mean() for order in orders])
    crossed = [cross_entropy_bits(answers.posterior[order], answers.log_restricted).mean() for order in orders]
    divergence = np.array(crossed) - entropy_bits(answers.posterior)[orders].mean(axis=1)
    permuted = {
        "entropy_error": errors, "skill": 1 - ratio(errors, constant[orders].mean(axis=1)),
        "kl": divergence, "kl_skill": 1 - ratio(divergence, best[orders].mean(axis=1)),
        "slope": np.array([Slopes(answers, order).value() for order in orders]),
        "entropy_correlation": unit_length(y[orders]) @ x,
    }  # fmt: skip
    for name, of in found.items():
        if name in permuted and not np.isnan(of.value[0]):
            found[name] = of.permuted(permuted[name][:, None], asks=CALIBRATION[name].asks)
        else:
            found[name] = replace(of, p=np.array([np.nan]))
    return {name: replace(of, about=answers.counted) for name, of in found.items()}


class Slopes:
    """The slope of the model's log-odds on the exact ones, for the posteriors as they are or in another `order`."""

    def __init__(self, answers: Answers, order: np.ndarray | None = None) -> None:
        posterior = answers.posterior if order is None else answers.posterior[order]
        possible = posterior > 0
        log_p = np.log2(posterior, out=np.zeros_like(posterior), where=possible)
        self.is_pair = posterior.shape[1] == 2 and bool(possible.all())
        self.groups = answers.groups
        if self.is_pair:
            self.x, self.y = (log[:, 0] - log[:, 1] for log in (log_p, answers.log_q))
        else:
            x, y = (_from_row_mean(log, possible) for log in (log_p, answers.log_q))
            self.products, self.squares = (x * y).sum(axis=1), (x * x).sum(axis=1)

    def value(self) -> float:
        """NaN where nothing varies."""
        return float(self.resampled(np.ones((1, len(self.groups))))[0])

    def intercept(self, weights: np.ndarray) -> Float[np.ndarray, " resample"]:
        """The model's log-odds at even evidence, of one pair of outcomes."""
        return (weights @ self.y - self.resampled(weights) * (weights @ self.x)) / weights.sum(axis=1)

    @property
    def is_one_pair(self) -> bool:
        return self.is_pair and not self.groups.any()

    def resampled(self, weights: Num[np.ndarray, "resample row"]) -> Float[np.ndarray, " resample"]:
        if not self.is_pair:
            return _quotient(weights @ self.products, weights @ self.squares)
        shared, spread = np.zeros(len(weights)), np.zeros(len(weights))
        for group in np.unique(self.groups):
            mine = self.groups == group
            w, x, y = weights[:, mine], self.x[mine], self.y[mine]
            total = np.maximum(w.sum(axis=1), 1.0)
            shared += w @ (x * y) - (w @ x) * (w @ y) / total
            spread += w @ (x * x) - np.square(w @ x) / total
        return _quotient(shared, spread)


def kl_of_best_single(answers: Answers) -> Float[np.ndarray, " row"]:
    """KL(p ‖ mean p) of every row, the mean over rows with the same outcomes: the best that knows no evidence."""
    groups = Groups.of(answers.groups)
    return kl_bits(answers.posterior, (groups.mean @ answers.posterior)[groups.code])


def _from_row_mean(log: np.ndarray, possible: np.ndarray) -> np.ndarray:
    count = possible.sum(axis=1, keepdims=True)
    mean = np.where(possible, log, 0.0).sum(axis=1, keepdims=True) / count
    left = np.where(possible, log - mean, 0.0)
    return np.where(np.abs(left) > 1e-9, left, 0.0)


def _quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 1e-9)


def _skill(errors: np.ndarray, totals: np.ndarray, counts: np.ndarray) -> Estimates:
    """1 − Σ errors / Σ totals."""
    if totals.sum() <= 1e-9:
        why = "the exact posterior is always the same: a constant makes no error"
        return Estimates.bare(np.array([np.nan]), why=why)
    return Estimates.shares(errors[:, None], totals[:, None], counts)


def _resampled(value: float, replicates: Num[np.ndarray, " resample"], why: str = "") -> Estimates:
    """One number with its bootstrap interval, or why there is none."""
    return Estimates.resampled(np.array([float(value)]), replicates[:, None]).because(why)
