"""Fitting and judging on different prompts: the halves, and the permutations and resamples that go with them."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import special

from interp.errors import PromptError
from interp.statistics.correlation import unit_length
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights, shuffles

from .cloud import Cloud
from .sample_sizes import MIN_HALVES

_QUANTILE = float(special.ndtri(0.975))


@dataclass(frozen=True)
class Halves:
    """Rows of whole prompts to fit on and rows of other prompts to judge on.

    `orders` exchange the labels of the fitting half between its prompts, `judged_orders` those of the judged half;
    `weights` resample the judged prompts. They serve every layer and site.
    """

    fitting: Int[np.ndarray, " fitted"]
    judged: Int[np.ndarray, " judged"]
    fitting_units: Int[np.ndarray, " fitted"]
    orders: Int[np.ndarray, "permutation fitted"]
    judged_orders: Int[np.ndarray, "permutation judged"]
    weights: Int[np.ndarray, "resample judged"]


def halve(cloud: Cloud, n_permutations: int, n_bootstrap: int, rng: np.random.Generator) -> Halves:
    """Split a pool at random into halves of whole prompts; the fitting half is the larger one of an odd number."""
    if cloud.n_units < MIN_HALVES:
        raise PromptError(
            asked=f"an axis fitted on one half of {cloud.n_units} {cloud.unit}s and judged on the other",
            found=f"fewer than {MIN_HALVES} make no halves",
            fix="Give more prompts; the statistics want two hundred or more.",
        )
    fitting, judged = split_rows(cloud.units, rng)
    units = cloud.units
    orders = shuffles(units[fitting], n_permutations, rng)
    judged_orders = shuffles(units[judged], n_permutations, rng)
    weights = bootstrap_weights(units[judged], np.zeros(len(judged), dtype=np.int64), n_bootstrap, rng)
    return Halves(fitting, judged, units[fitting], orders, judged_orders, weights)


def split_rows(
    units: Int[np.ndarray, " row"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " second"]]:
    """The rows of a random half of the units, and of the others."""
    names = rng.permutation(np.unique(units))
    first = np.isin(units, names[: -(-len(names) // 2)])
    return np.flatnonzero(first), np.flatnonzero(~first)


def held_out_r2(
    truth: Float[np.ndarray, "row target"], predicted: Float[np.ndarray, "row target"]
) -> Float[np.ndarray, " target"]:
    """1 − Σ(y − ŷ)² / Σy², where y is measured from what the fitting half's mean (or nuisances) predicts.

    At most 1; below 0 where the prediction is worse than having fitted nothing. NaN where the truth never varies.
    """
    return 1 - ratio(np.square(truth - predicted).sum(axis=0), np.square(truth).sum(axis=0))


def exchanged_correlations(
    truth: Float[np.ndarray, " row"],
    predicted: Float[np.ndarray, " row"],
    orders: Int[np.ndarray, "permutation row"],
) -> Float[np.ndarray, " permutation_and_truth"]:
    """Pearson's correlation of fixed predictions with the truth, then with the truth in each order.

    NaN where either never varies (beyond rounding).
    """
    x, y = unit_length(np.stack([predicted, truth]))
    if not x.any() or not y.any():
        return np.full(1 + len(orders), np.nan)
    return np.concatenate([[x @ y], y[orders] @ x])


def r2_intervals(
    truth: Float[np.ndarray, " row"],
    predicted: Float[np.ndarray, "prediction row"],
    weights: Int[np.ndarray, "resample row"],
) -> list[tuple[float, float] | None]:
    """95 % interval of the R² of every prediction over judged prompts, the fit held fixed (see `share_interval`)."""
    errors, totals = np.square(truth - predicted), np.square(truth)
    counts = weights.astype(np.float64)
    unexplained, total = errors @ counts.T, counts @ totals
    return [
        _interval_of(left, total, float(mine.sum()), float(totals.sum()))
        for left, mine in zip(unexplained, errors, strict=True)
    ]


def share_interval(
    errors: Float[np.ndarray, " unit"], totals: Float[np.ndarray, " unit"], weights: Int[np.ndarray, "resample unit"]
) -> tuple[float, float] | None:
    """95 % interval of R² = 1 − Σ errors / Σ totals: ± normal quantile × bootstrap error of log(1 − R²).

    None where no resample differs.
    """
    return _interval_of(weights @ errors, weights @ totals, float(errors.sum()), float(totals.sum()))


def _interval_of(unexplained: np.ndarray, total: np.ndarray, error: float, whole: float) -> tuple[float, float] | None:
    usable = (unexplained > 0) & (total > 0)
    if usable.sum() < 2:
        return None
    half = _QUANTILE * float(np.log(unexplained[usable] / total[usable]).std(ddof=1))
    share = error / whole
    if half == 0 or share == 0:
        return None
    return 1 - share * float(np.exp(half)), 1 - share * float(np.exp(-half))


def label_by_type(
    types: Shaped[np.ndarray, " row"], labels: Float[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "row control"]:
    """`n` control tasks: every type of token is given one of the labels at random, wherever it occurs.

    Source: Hewitt and Liang 2019, arXiv 1909.03368.
    """
    names, codes = np.unique(types, return_inverse=True)
    return rng.choice(labels, size=(len(names), n))[codes]
