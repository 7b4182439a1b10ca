"""The curve of the states in order of their entropy: its length, and the spread of its low-entropy end.

States are put into bins by an entropy that is the same at every checkpoint (the exact posterior's, else that of the end
of the training): one bin for each value where there are few, else equal shares. With the mean μ_b of every bin,

    length            Σ ‖μ_{b+1} − μ_b‖                                   along the order of the entropy
    relative length   length / s,  s² = mean ‖x − mean‖²                  free of the scale of the values
    low-entropy distance   √ of the mean squared distance between two states of the lowest fifth, over that of any two

Intervals are jackknives over prompts on the logarithm (bin means of resamples are noisier than those of the sample, so
a bootstrap of a length is biased upwards). Null: entropies permuted between prompts, since noise has a length too.
Papers I and III show the curve and define no length: these are ours.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from interp.statistics.intervals import prediction_band, t_quantile
from interp.statistics.jackknife import equal_groups, standard_error
from interp.statistics.resampling import shuffles

ORDERED = ("manifold_length", "relative_length", "low_entropy_distance")
"""The statistics, in the order of the last axis of every array of them."""

MAX_BINS = 10
_FEW_VALUES = 20
_CERTAIN = 0.2
_ROUNDING = 1e-6


@dataclass(frozen=True)
class EntropyOrder:
    """Bins of the rows by entropy, most certain first; `certain` says which bins make the lowest fifth."""

    bin: Int[np.ndarray, " row"]
    n_bins: int
    certain: Int[np.ndarray, " low"]

    @classmethod
    def of(cls, entropy_bits: Float[np.ndarray, " row"], n_units: int) -> "EntropyOrder":
        rounded = np.round(entropy_bits, 6)
        values = np.unique(rounded)
        if len(values) > min(_FEW_VALUES, n_units // 3):
            n_bins = int(np.clip(n_units // 8, 2, MAX_BINS))
            place = np.argsort(np.argsort(entropy_bits, kind="stable"), kind="stable")
            code = place * n_bins // len(place)
        else:
            code = np.searchsorted(values, rounded)
            n_bins = len(values)
        cumulative = np.cumsum(np.bincount(code, minlength=n_bins)) / len(code)
        return cls(code, n_bins, np.arange(int(np.searchsorted(cumulative, _CERTAIN)) + 1))


def ordered_statistics(
    points: Float[np.ndarray, "row feature"], order: EntropyOrder, units: np.ndarray, n_null: int, seed: int
) -> Float[np.ndarray, "statistic entry"]:
    """`ORDERED` of one cloud, six entries each: value, interval, null and its band; NaN where nothing varies."""
    points = np.asarray(points, dtype=np.float64)
    points = points - points.mean(axis=0)
    names, code = np.unique(units, return_inverse=True)
    size, members = equal_groups(len(names))
    group = np.full(len(names), len(members))
    group[members] = np.arange(len(members))[:, None]
    sums = _sums(points, order.bin, order.n_bins, group[code], len(members) + 1)
    whole = sums.sum(axis=0)
    value = _statistics(whole[None], whole, order.certain)[0]
    left_out = _statistics(whole - sums[:-1], whole, order.certain)
    with np.errstate(divide="ignore", invalid="ignore"):
        replicates = np.log(left_out)
        error = standard_error(replicates, len(names), size)
        known = np.isfinite(replicates).all(axis=0) & (value > 0) & (error > _ROUNDING)
        half = np.where(known, error, np.nan) * t_quantile(len(members))
        low, high = value * np.exp(-half), value * np.exp(half)
    orders = shuffles(units, n_null, np.random.default_rng([seed, 7]))
    together = np.zeros(len(points), dtype=np.int64)
    shuffled = np.array([_sums(points, order.bin[o], order.n_bins, together, 1)[0] for o in orders])
    draws = _statistics(shuffled, whole, order.certain)
    return np.vstack([value, low, high, prediction_band(draws)]).T


def _sums(
    points: np.ndarray, code: np.ndarray, n_bins: int, group: np.ndarray, n_groups: int
) -> Float[np.ndarray, "group bin entry"]:
    """For every group and bin: the rows, the sum of their squared lengths, and the sum of the points."""
    cell = group * n_bins + code
    entries = np.column_stack([np.ones(len(points)), np.square(points).sum(axis=1), points])
    member = sparse.csr_array((np.ones(len(cell)), (cell, np.arange(len(cell)))), shape=(n_groups * n_bins, len(cell)))
    return (member @ entries).reshape(n_groups, n_bins, -1)


def _statistics(
    sums: Float[np.ndarray, "replicate bin entry"], whole: Float[np.ndarray, "bin entry"], certain: np.ndarray
) -> Float[np.ndarray, "replicate statistic"]:
    """`ORDERED` from sums; a bin that is empty in a replicate keeps the mean of the whole."""
    count = sums[..., :1]
    kept = np.where(count > 0, sums, whole)
    means = np.divide(kept[..., 2:], kept[..., :1], out=np.zeros_like(kept[..., 2:]), where=kept[..., :1] > 0)
    length = np.linalg.norm(np.diff(means, axis=1), axis=-1).sum(axis=1)
    spread, low = _spread(sums), _spread(sums[:, certain])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([length, length / spread, low / spread], axis=-1)


def _spread(sums: np.ndarray) -> np.ndarray:
    """Root mean squared distance from the mean, of all bins together, with n − 1; half the squared pairwise one."""
    total = sums.sum(axis=1)
    n = total[:, 0]
    squared = total[:, 1] - np.square(total[:, 2:]).sum(axis=1) / np.maximum(n, 1)
    return np.sqrt(np.maximum(squared, 0.0) / np.maximum(n - 1, 1))
