"""Halves of prompts to fit on and to judge on, shares of variance judged there, and control tasks."""

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import special

_QUANTILE = float(special.ndtri(0.975))


def split_rows(
    units: Int[np.ndarray, " row"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " second"]]:
    """The rows of a random half of the units, and of the others."""
    names = rng.permutation(np.unique(units))
    first = np.isin(units, names[: -(-len(names) // 2)])
    return np.flatnonzero(first), np.flatnonzero(~first)


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
