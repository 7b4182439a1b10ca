"""Rank correlations with their permutation and bootstrap distributions.

Spearman's ρ is the Pearson correlation of midranks. Bootstrap resamples are weights, so every resample's ρ
comes from one sort: a row of weight w shifts the midranks after it by w.
Layers are dependent, and so are their tests: p is taken over the largest |ρ| of all layers under the same
permutations (Westfall and Young 1993), which needs no assumption on how they depend.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num, Shaped

from interp.statistics.intervals import maximum_statistic_p

_AT_ONCE = 100
"""Resamples that are ranked together, few enough for the processor's cache."""

_ROUNDING = 1e-20
"""Sum of squared deviations of ranks, relative to (rows)³, below which it is rounding."""


@dataclass(frozen=True)
class RankTest:
    """Spearman correlations of several coordinates with one variable, tested together.

    `permuted` holds |ρ| of every coordinate under the same permutations; `p` is corrected over the coordinates.
    A coordinate (or variable) that never varies has ρ = NaN and p = NaN.
    """

    rho: Float[np.ndarray, " coordinate"]
    p: Float[np.ndarray, " coordinate"]
    permuted: Float[np.ndarray, "permutation coordinate"]


def rank_test(
    coordinates: Float[np.ndarray, "coordinate row"],
    variable: Num[np.ndarray, " row"],
    orders: Int[np.ndarray, "permutation row"],
) -> RankTest:
    """Spearman's ρ of every coordinate with the variable, and p from the largest |ρ| under `orders`."""
    x, y = unit_ranks(coordinates), unit_ranks(variable[None])[0]
    rho = np.where(x.any(axis=1) & y.any(), x @ y, np.nan)
    permuted = np.abs(unit_length(y[orders]) @ x.T)  # clusters of unequal size repeat rows
    return RankTest(rho, maximum_statistic_p(np.abs(rho), permuted), permuted)


def unit_ranks(values: Num[np.ndarray, "variable row"]) -> Float[np.ndarray, "variable row"]:
    """Midranks, centred and of length one, so that inner products are Spearman's ρ; zero where nothing varies."""
    return unit_length(midranks(values))


def unit_length(values: Float[np.ndarray, "variable row"]) -> Float[np.ndarray, "variable row"]:
    """Values centred and of length one; zero where nothing varies."""
    centred = values - values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    floor = 1e-12 * np.abs(values).max(axis=1, keepdims=True, initial=0.0) * values.shape[1] ** 0.5
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > floor)


def ranks_within(values: Num[np.ndarray, " row"], groups: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Midranks within each group, centred there: what is left of the order once the group is known."""
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    unknown = np.isnan(values)
    among_all = midranks(np.where(unknown, np.inf, values))
    ranks = midranks(codes * (len(values) + 1) + among_all)
    ranks -= (np.bincount(codes, ranks) / counts)[codes]
    return np.where(np.bincount(codes, unknown)[codes] > 0, np.nan, ranks)


def midranks(values: Num[np.ndarray, "*batch row"]) -> Float[np.ndarray, "*batch row"]:
    """Ranks along the last axis from 1 on; equal values share the mean of theirs, and beside a NaN none has a rank."""
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    differs, edge = ordered[..., 1:] != ordered[..., :-1], np.ones_like(ordered[..., :1], dtype=bool)
    place, n = np.arange(values.shape[-1]), values.shape[-1]
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs], axis=-1), place, 0), axis=-1)
    ends = np.where(np.concatenate([differs, edge], axis=-1), place, n)
    last = np.minimum.accumulate(ends[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, 1 + (first + last) / 2, axis=-1)
    return np.where(np.isnan(values).any(axis=-1, keepdims=True), np.nan, ranks)


def resampled_rank_correlations(
    x: Num[np.ndarray, "variable row"], y: Num[np.ndarray, " row"], weights: Num[np.ndarray, "resample row"]
) -> Float[np.ndarray, "variable resample"]:
    """Spearman's ρ of each variable with the same y in every resample, where row i counts `weights[:, i]` times.

    NaN where one side does not vary in a resample.
    """
    found = np.full((len(x), len(weights)), np.nan)
    for start in range(0, len(weights), _AT_ONCE):
        counts = weights[start : start + _AT_ONCE].T.copy()
        of_y = _deviations(y, counts)
        weighted, spread = counts * of_y, np.einsum("rb,rb,rb->b", counts, of_y, of_y)
        floor = _ROUNDING * counts.sum(axis=0) ** 3
        for one, rho in zip(x, found[:, start : start + _AT_ONCE], strict=True):
            of_x = _deviations(one, counts)
            of_one = np.einsum("rb,rb,rb->b", of_x, of_x, counts)
            varies = (spread > floor) & (of_one > floor)
            np.divide(np.einsum("rb,rb->b", weighted, of_x), np.sqrt(spread * of_one), out=rho, where=varies)
    return found


def _deviations(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The midrank of every row's value in each resample, from the mean of all ranks."""
    order = np.argsort(values, kind="stable")
    ties = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)
    in_order = counts[order]
    if len(ties) < len(values):
        in_order = np.add.reduceat(in_order, ties, axis=0)
    ranks = np.cumsum(in_order, axis=0) - in_order / 2
    ranks -= counts.sum(axis=0) / 2
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(ties)), np.diff(ties, append=len(values)))
    return ranks[group]


def resampled_correlations(
    x: Float[np.ndarray, "variable row"], y: Float[np.ndarray, " row"], weights: Num[np.ndarray, "resample row"]
) -> Float[np.ndarray, "variable resample"]:
    """Pearson's correlation of each variable with the same y in every resample, their values staying as they are.

    All from one product of weights and values; NaN where one side does not vary in a resample.
    """
    x, y = unit_length(x), unit_length(y[None])[0]
    total = weights.sum(axis=1)
    n = len(x)
    moments = (np.concatenate([x, x * x, x * y, y[None], y[None] * y]) @ weights.T) / total
    mean, square, product = moments[:n], moments[n : 2 * n], moments[2 * n : 3 * n]
    variance = _positive(square - np.square(mean), square)
    of_y = _positive(moments[-1] - np.square(moments[-2]), moments[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        return (product - mean * moments[-2]) / np.sqrt(variance * of_y)


def _positive(variance: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Variances, NaN where they are rounding beside the mean square."""
    return np.where(variance > 1e-12 * square, variance, np.nan)
