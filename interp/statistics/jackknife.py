"""Jackknife intervals of spectral statistics.

A bootstrap repeats rows, which changes the spectrum: its intervals miss. The jackknife only removes. With replicates
θ₍ₖ₎, each without m of the n prompts, on the logit scale for shares and the log scale for the participation ratio, over
g disjoint groups,

    se² = (n − m)² / (n m (g − 1)) · Σₖ (θ₍ₖ₎ − mean)²        (m = 1, g = n: the familiar (n − 1)/n · Σ)

and the interval is θ ± t(g − 1) se. All groups have the same size m; the n mod m prompts left over stay in every
replicate. In unequal groups the statistic's dependence on n adds to the error: at n = 75 in ten groups of 7 and 8 the
standard error of the participation ratio was 11 times too large. For clusters of unequal size, pseudo-values remove
that dependence to first order (Busing, Meijer and van der Leeden 1999, Statistics and Computing 9, 3): with
hⱼ = rows / rows of cluster j and τⱼ = hⱼ θ − (hⱼ − 1) θ₍ⱼ₎,

    se² = 1/g · Σⱼ (τⱼ − mean)² / (hⱼ − 1)

The intervals cover the expected value *at this n*. Leaving one prompt out of centred rows subtracts a rank-one matrix
from the scatter, S₍ᵢ₎ = S − n/(n − 1) yᵢ yᵢᵀ (y: centred row), so the leading eigenvalues are roots of

    1 = n/(n − 1) · Σⱼ aᵢⱼ² / (λⱼ − μ),        λ₁ ≥ μ₁ ≥ λ₂ ≥ μ₂ ≥ λ₃,        aᵢⱼ: score of row i on axis j

and nothing is refitted (Golub 1973, SIAM Review 15, 318). Measured coverage is in docs/reference/probes/manifold.md.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from interp.statistics.intervals import t_quantile
from interp.statistics.spectra import SPECTRAL, Scaling, gram_statistics, scaled, smaller_gram

MAX_REFITS = 50
"""Most groups of a jackknife that refits; up to `MAX_SINGLE` prompts each is still left out alone."""

MAX_SINGLE = 100

_BISECTIONS = 60

_LEFT = 1e-12
"""Share of the variance below which what deletions leave is rounding."""

_ROUNDING = 1e-10
"""Difference from one up to which a share counts as one; standard error up to which it counts as none."""


@dataclass(frozen=True)
class Deletions:
    """Replicates of the spectral statistics without some of the prompts.

    `n_deleted` of `n_units` prompts are missing from each, or, of clusters of unequal size, these `shares` of all rows;
    `method` describes it in words.
    """

    statistics: Float[np.ndarray, "replicate statistic"]
    n_units: int
    n_deleted: int
    method: str
    shares: Float[np.ndarray, " replicate"] | None = None

    def error(
        self, value: Float[np.ndarray, " statistic"], replicates: Float[np.ndarray, "replicate statistic"]
    ) -> Float[np.ndarray, " statistic"]:
        """The standard error of a statistic, it and its replicates on any scale."""
        if self.shares is None:
            return standard_error(replicates, self.n_units, self.n_deleted)
        return np.sqrt(np.square(influences(value, replicates, self.shares)).sum(axis=0))


def deletions(rows: np.ndarray, scaling: Scaling, units: Int[np.ndarray, " row"]) -> Deletions:
    """Leave out every prompt in turn, or groups of whole prompts where that would be slow.

    `units` names the prompt of each row. Needs at least three prompts.
    """
    names, codes = np.unique(units, return_inverse=True)
    if len(names) == len(units) and scaling == "centred":
        statistics = without_each_row(scaled(rows, "centred"))
        return Deletions(statistics, len(rows), 1, "delete-one jackknife")
    sizes = np.bincount(codes)
    if np.ptp(sizes):
        size, of_row = 0, _spread(len(names))[codes]
    else:
        size, groups = equal_groups(len(names))
        group = np.full(len(names), -1)
        group[groups] = np.arange(len(groups))[:, None]
        of_row = group[codes]
    n_groups = int(of_row.max()) + 1
    statistics = without_each_group(rows, scaling, of_row)
    if not size:
        method = f"jackknife over {n_groups} clusters of unequal size or groups of them"
        return Deletions(statistics, len(names), 1, method, np.bincount(of_row) / len(rows))
    method = "delete-one jackknife" if size == 1 else f"delete-group jackknife, {n_groups} groups of {size}"
    return Deletions(statistics, len(names), size, method)


def _spread(n_units: int) -> Int[np.ndarray, " unit"]:
    """The group of every unit: itself, or one of `MAX_REFITS` groups of units that lie far apart."""
    return np.arange(n_units) % (n_units if n_units <= MAX_SINGLE else MAX_REFITS)


def equal_groups(n_units: int) -> tuple[int, Int[np.ndarray, "group member"]]:
    """Size and members of disjoint groups of equal size, at most `MAX_REFITS` of them once n is above `MAX_SINGLE`.

    Members are spread over the order of the units (every g-th), so that sorted sets do not lose a stretch.
    """
    size = 1 if n_units <= MAX_SINGLE else -(-n_units // MAX_REFITS)
    n_groups = n_units // size
    return size, np.arange(n_groups * size).reshape(size, n_groups).T


def without_each_row(centred: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row statistic"]:
    """The spectral statistics of centred rows without each row in turn, recentred, without refitting.

    Exact to rounding. The trace and the trace of the square follow in closed form, the two leading eigenvalues
    from the secular equation, for all rows at once.
    """
    n = len(centred)
    factor = n / (n - 1)
    loads = np.square(_principal_coordinates(centred))
    loads = np.pad(loads, ((0, 0), (0, max(0, 3 - loads.shape[1]))))
    spectrum, lengths = loads.sum(axis=0), loads.sum(axis=1)
    trace = spectrum.sum() - factor * lengths
    trace_of_square = np.square(spectrum).sum() - 2 * factor * (loads @ spectrum) + np.square(factor * lengths)
    first = _secular_roots(spectrum, factor * loads, 0)
    second = _secular_roots(spectrum, factor * loads, 1)
    statistics = np.stack([first, first + second, np.square(trace)], axis=1)
    scale = np.stack([trace, trace, trace_of_square], axis=1)
    # what is left of one row's worth of variance after deleting it is rounding, not a spectrum
    alive = scale > _LEFT * np.array([spectrum.sum(), spectrum.sum(), np.square(spectrum).sum()])
    return np.divide(statistics, scale, out=np.full_like(statistics, np.nan), where=alive)


def without_each_group(
    rows: Float[np.ndarray, "row feature"], scaling: Scaling, groups: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "group statistic"]:
    """The spectral statistics without the rows of each group in turn; centred rows need no refitting.

    Groups are numbered from 0; rows of a negative number always stay.
    """
    n_groups = int(groups.max()) + 1
    if scaling == "zscored":
        left = (scaled(rows[groups != group], scaling) for group in range(n_groups))
        return np.array([gram_statistics(smaller_gram(kept)) for kept in left])
    centred = scaled(rows, scaling)
    if centred.shape[0] < centred.shape[1]:
        centred = _principal_coordinates(centred)
    whole, total, n = centred.T @ centred, centred.sum(axis=0), len(centred)
    found = np.full((n_groups, len(SPECTRAL)), np.nan)
    for group, statistics in enumerate(found):
        mine = centred[groups == group]
        left = total - mine.sum(axis=0)
        scatter = whole - mine.T @ mine - np.outer(left, left) / (n - len(mine))
        if np.trace(scatter) > _LEFT * np.trace(whole):
            statistics[:] = gram_statistics(scatter)
    return found


def _principal_coordinates(centred: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row axis"]:
    """Coordinates of the rows along their principal axes, largest first."""
    values, vectors = np.linalg.eigh(smaller_gram(centred))
    is_of_rows = len(centred) <= centred.shape[1]
    coordinates = vectors * np.sqrt(np.clip(values, 0.0, None)) if is_of_rows else centred @ vectors
    return coordinates[:, ::-1]


def _secular_roots(spectrum: np.ndarray, loads: np.ndarray, index: int) -> np.ndarray:
    """For every row the root of 1 = Σⱼ loadsⱼ / (λⱼ − μ) between λ at `index + 1` and at `index`.

    The sum grows with μ between two poles, so bisection cannot miss. Where a row has no load on one of the two axes
    the pole is missing, and bisection ends at the eigenvalue that stays: the right answer without a special case.
    """
    low = np.full(len(loads), spectrum[index + 1])
    high = np.full(len(loads), spectrum[index])
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        gap = spectrum - middle[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            above = np.nansum(loads / gap, axis=1) > 1
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


def on_real_line(statistics: Float[np.ndarray, "*batch statistic"]) -> Float[np.ndarray, "*batch statistic"]:
    """Logit of the two shares, logarithm of the participation ratio; infinite at a bound."""
    shares, ratio = statistics[..., :2], statistics[..., 2:]
    shares = np.where(shares > 1 - _ROUNDING, 1.0, shares)
    with np.errstate(divide="ignore"):
        return np.concatenate([special.logit(shares), np.log(ratio)], axis=-1)


def standard_error(
    replicates: Float[np.ndarray, "replicate *rest"], n_units: int, n_deleted: int
) -> Float[np.ndarray, "*rest"]:
    """The jackknife standard error of the module's formula, along the first axis."""
    n_groups = len(replicates)
    spread = np.square(replicates - replicates.mean(axis=0)).sum(axis=0)
    return np.asarray(np.sqrt((n_units - n_deleted) ** 2 / (n_units * n_deleted * (n_groups - 1)) * spread))


def influences(
    value: Float[np.ndarray, "*rest"], replicates: Float[np.ndarray, "replicate *rest"],
    shares: Float[np.ndarray, " replicate"],
) -> Float[np.ndarray, "replicate *rest"]:  # fmt: skip
    """What each replicate, which lacks this share of the rows, adds to the error: their squares sum to its square.

    The module's second formula; those of two statistics can be subtracted before.
    """
    h = (1 / shares).reshape(-1, *([1] * (replicates.ndim - 1)))
    pseudo = h * value - (h - 1) * replicates
    return (pseudo - pseudo.mean(axis=0)) / np.sqrt((h - 1) * len(replicates))


def spectral_intervals(
    statistics: Float[np.ndarray, " statistic"], deleted: Deletions
) -> Float[np.ndarray, "statistic bound"]:
    """95 % intervals of the three statistics; NaN where every replicate is at a bound, or one is undefined."""
    value, replicates = on_real_line(statistics), on_real_line(deleted.statistics)
    usable = np.isfinite(value) & np.isfinite(replicates).all(axis=0)
    value, replicates = (np.where(usable, x, 0.0) for x in (value, replicates))
    error = deleted.error(value, replicates)
    half = np.where(usable & (error > _ROUNDING), error, np.nan) * t_quantile(len(replicates))
    bounds = np.stack([value - half, value + half])
    return np.concatenate([special.expit(bounds[:, :2]), np.exp(bounds[:, 2:])], axis=1).T
