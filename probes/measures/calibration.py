"""How near a model's answers come to the exact posterior: entropy error, divergence, skill and the weight of evidence.

Among the outcomes alone the model's posterior is q, the exact one p, with entropies H_model and H_Bayes.

    entropy error   mean |H_model − H_Bayes|            skill      1 − error / error of the best constant
    divergence      mean KL(p ‖ q)                      KL skill   1 − KL / mean KL(p ‖ mean p)
    slope           of the model's log-odds on the exact ones: 1 for a reader who weighs evidence as it should be,
                    0 for one who does not look

The best constant is the median of H_Bayes, and mean p the best single distribution: a model without skill scores 0,
whatever its error in bits. With two outcomes the slope has an intercept, so that a liking for one word does not
enter it; with more it is Σ x·y / Σ x·x over the possible outcomes, x = log2 p and y = log2 q, each from its mean in
the row. Null: posteriors permuted between prompts that were shown equally much in the same words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Interval, Null, Scalar
from interp.information import entropy_bits
from interp.statistics.correlation import resampled_correlations, unit_length
from interp.statistics.estimate import maximum_statistic_p, null_from_permutations, percentile_interval, share_interval
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import FEW_UNITS

from .answers import Answers
from .exchanges import exchange_within
from .target import steady

UNITS = {
    "entropy_error": "bits", "skill": "1", "kl": "bits", "kl_skill": "1", "slope": "1", "label_bias": "bits",
    "outcome_mass": "fraction", "entropy_correlation": "1",
}  # fmt: skip
MEANINGS = {
    "entropy_error": "mean distance between the entropy of the model's posterior and that of the exact one",
    "skill": "share of the best constant's entropy error that the model does without; 0 is a constant, 1 is Bayes",
    "kl": "divergence of the model's posterior from the exact one, among the outcomes",
    "kl_skill": "share of the divergence of the best single distribution that the model does without; 1 is Bayes",
    "slope": "bits of the model's log-odds for each bit of exact log-odds; 1 is Bayes, 0 does not look at the evidence",
    "label_bias": "log-odds for the label of the smaller token id where the evidence is even",
    "outcome_mass": "probability that the model gives all outcomes together, over its whole vocabulary",
    "entropy_correlation": "Pearson correlation of the entropies of the model's and the exact posterior",
}
_SIDES: Mapping[str, Literal["less", "greater"]] = {
    "entropy_error": "less", "skill": "greater", "kl": "less", "kl_skill": "greater", "slope": "greater",
    "entropy_correlation": "greater",
}  # fmt: skip


@dataclass(frozen=True)
class Constants:
    """The entropies that a reader without skill would always name: the mean, the median, and everything open."""

    mean: float
    best: float
    open: float

    @classmethod
    def of(cls, answers: Answers) -> "Constants":
        exact = answers.entropy_exact
        return cls(float(exact.mean()), float(np.median(exact)), float(np.log2(answers.posterior.shape[1])))


@dataclass(frozen=True)
class Resamples:
    """Exchanges of the posteriors and bootstrap weights of the rows of one condition."""

    orders: Int[np.ndarray, "permutation row"]
    weights: Int[np.ndarray, "resample row"]

    @classmethod
    def of(cls, answers: Answers, n_permutations: int, n_bootstrap: int, rng: np.random.Generator) -> "Resamples":
        """Whole clusters, resampled within their strata: how many there are of each k is design, not chance."""
        orders = exchange_within(answers.stratum, answers.cluster, n_permutations, rng)
        return cls(orders, bootstrap_weights(answers.cluster, answers.stratum, n_bootstrap, rng))


def calibration(answers: Answers, resamples: Resamples, vocab_size: int) -> dict[str, Scalar]:
    """Every number of `UNITS` for the rows of one condition."""
    weights = resamples.weights / resamples.weights.sum(axis=1, keepdims=True)
    exact, model, orders = answers.entropy_exact, answers.entropy_model, resamples.orders
    error, constant = np.abs(model - exact), np.abs(Constants.of(answers).best - exact)
    errors = np.array([np.abs(model - exact[order]).mean() for order in orders])
    divergence = np.array([_expected(answers.posterior[order], answers.log_restricted) for order in orders])
    divergence = -entropy_bits(answers.posterior).mean() - divergence
    mean_kl = kl_of_best_single(answers)
    made = _Maker(answers)
    found = {
        "entropy_error": made.scalar("entropy_error", error.mean(), weights @ error, errors),
        "kl": made.scalar("kl", answers.kl.mean(), weights @ answers.kl, divergence),
        "skill": made.share("skill", error, constant, errors, resamples.weights),
        "kl_skill": made.share("kl_skill", answers.kl, mean_kl, divergence, resamples.weights),
        "entropy_correlation": _correlation(made, model, exact, resamples),
    }
    slopes = Slopes(answers)
    reason = "the exact odds never differ between possible outcomes: there is nothing to weigh"
    value = slopes.value()
    if np.isnan(value):
        found |= {name: made.undefined(name, reason) for name in ("slope", "label_bias")}
    else:
        permuted = np.array([Slopes(answers, order).value() for order in orders])
        found["slope"] = made.scalar("slope", value, slopes.resampled(resamples.weights), permuted)
        found["label_bias"] = _bias(made, slopes, resamples.weights)
    mass, share = np.exp2(answers.log_mass), answers.posterior.shape[1] / vocab_size
    found["outcome_mass"] = made.scalar(
        "outcome_mass", mass.mean(), weights @ mass, Null("uniform over the vocabulary", share, (share, share))
    )
    return {name: found[name] for name in UNITS}


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
        return float(self._slope(np.ones((1, len(self.groups))))[0])

    def resampled(self, weights: Int[np.ndarray, "resample row"]) -> Float[np.ndarray, " resample"]:
        return self._slope(weights.astype(np.float64))

    def intercept(self, weights: np.ndarray) -> Float[np.ndarray, " resample"]:
        """The model's log-odds at even evidence, of one pair of outcomes."""
        total = weights.sum(axis=1)
        return (weights @ self.y - self._slope(weights) * (weights @ self.x)) / total

    @property
    def is_one_pair(self) -> bool:
        return self.is_pair and not self.groups.any()

    def _slope(self, weights: Float[np.ndarray, "resample row"]) -> Float[np.ndarray, " resample"]:
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
    found = np.zeros(len(answers))
    for group in np.unique(answers.groups):
        mine = answers.groups == group
        p = answers.posterior[mine]
        mean = np.broadcast_to(p.mean(axis=0), p.shape)
        log_mean = np.log2(mean, out=np.zeros_like(p), where=p > 0)
        found[mine] = -entropy_bits(p) - np.sum(p * log_mean, axis=1)
    return found


def _expected(p: Float[np.ndarray, "row outcome"], log_q: Float[np.ndarray, "row outcome"]) -> float:
    return float(np.sum(p * log_q, where=p > 0) / len(p))


def _from_row_mean(log: np.ndarray, possible: np.ndarray) -> np.ndarray:
    count = possible.sum(axis=1, keepdims=True)
    mean = np.where(possible, log, 0.0).sum(axis=1, keepdims=True) / count
    left = np.where(possible, log - mean, 0.0)
    return np.where(np.abs(left) > 1e-9, left, 0.0)


def _quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 1e-9)


def _correlation(made: "_Maker", model: np.ndarray, exact: np.ndarray, resamples: Resamples) -> Scalar:
    x, y = unit_length(np.stack([steady(model), exact]))
    if not x.any() or not y.any():
        return made.undefined("entropy_correlation", "one of the two entropies never varies")
    replicates = resampled_correlations(x[None], y, resamples.weights)[0]
    return made.scalar("entropy_correlation", float(x @ y), replicates, y[resamples.orders] @ x)


def _bias(made: "_Maker", slopes: Slopes, weights: np.ndarray) -> Scalar:
    if not slopes.is_one_pair:
        return made.undefined("label_bias", "defined for one pair of outcomes, the same in all prompts")
    value = float(slopes.intercept(np.ones((1, len(slopes.groups))))[0])
    reason = "0 where the two words are alike to the model; words played both roles, so that it is not in the slope"
    return made.scalar("label_bias", value, slopes.intercept(weights.astype(np.float64)), reason)


class _Maker:
    """Scalars of one condition."""

    def __init__(self, answers: Answers) -> None:
        self.resampled, self.counted = answers.resampled, answers.counted
        self.is_small = answers.n_clusters < FEW_UNITS
        amount = answers.evidence_name.replace("_", " ")
        self.null_name = f"posteriors permuted between {self.resampled}s of equal {amount}"

    def undefined(self, name: str, reason: str) -> Scalar:
        return Scalar.undefined(reason, UNITS[name], underpowered=True, meaning=MEANINGS[name], **self.counted)

    def scalar(self, name: str, value: float, replicates: np.ndarray, null: np.ndarray | Null | str) -> Scalar:
        """With a percentile interval; `null` holds permuted values, or is the null itself, or the reason for none."""
        return self._made(name, value, percentile_interval(float(value), replicates), "percentile bootstrap", null)

    def share(
        self, name: str, errors: np.ndarray, totals: np.ndarray, permuted_errors: np.ndarray, weights: np.ndarray
    ) -> Scalar:
        """1 − Σ errors / Σ totals."""
        if totals.sum() <= 1e-9:
            return self.undefined(name, "the exact posterior is always the same: a constant makes no error")
        value = 1 - float(errors.sum() / totals.sum())
        bounds = share_interval(errors, totals, weights)
        return self._made(name, value, bounds, "log(1 − skill) bootstrap", 1 - permuted_errors / totals.mean())

    def _made(
        self, name: str, value: float, bounds: tuple[float, float] | None, method: str, null: np.ndarray | Null | str
    ) -> Scalar:
        p = None
        if isinstance(null, np.ndarray):
            sign = -1.0 if _SIDES[name] == "less" else 1.0
            p = maximum_statistic_p(np.array([sign * value]), sign * null[:, None])[0]
            null = null_from_permutations(self.null_name, null)
        return Scalar.of(
            value, UNITS[name], Interval.of(bounds, f"{method} over {self.resampled}s", "no resample differs"), null,
            p=p, underpowered=self.is_small, meaning=MEANINGS[name], **self.counted,
        )  # fmt: skip
