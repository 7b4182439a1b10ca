"""Fitting and judging on different prompts, in repeated halvings, with or without what the last token determines.

One halving of the prompts is one draw of its number: over twenty halvings of one pool an R² ran from .17 to .32. So
numbers are means over `N_HALVINGS` random halvings, and their intervals contain the scatter of refitting (Nadeau and
Bengio 2003, doi 10.1023/A:1024068626366, the corrected resampled t).

Beyond the last token: rows whose last token recurs in their half; everything is centred within the token, in each half
by itself, which takes out whatever the token determines, exactly; then other nuisances are regressed out, as fitted
on the fitting half. Nothing that depends on the last token alone is left: it reads 0, not nearly 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import sparse, special

from interp.statistics.resampling import shuffles

from .cloud import Cloud
from .nuisances import orthonormal

N_HALVINGS = 10

_T = float(special.stdtrit(N_HALVINGS - 1, 0.975))
_QUANTILE = float(special.ndtri(0.975))


def split_rows(
    units: Int[np.ndarray, " row"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " second"]]:
    """The rows of a random half of the units, and of the others."""
    names = rng.permutation(np.unique(units))
    first = np.isin(units, names[: -(-len(names) // 2)])
    return np.flatnonzero(first), np.flatnonzero(~first)


def share_interval(
    errors: Float[np.ndarray, " unit"], totals: Float[np.ndarray, " unit"], weights: Int[np.ndarray, "resample unit"],
    least: float = 0.0,
) -> tuple[float, float] | None:  # fmt: skip
    """95 % interval of R² = 1 − Σ errors / Σ totals: ± normal quantile × bootstrap error of log(1 − R²).

    Never less to either side than `least`, a `chance_half_width`; None where no resample differs.
    """
    unexplained, total = weights @ errors, weights @ totals
    usable = (unexplained > 0) & (total > 0)
    if usable.sum() < 2:
        return None
    half = _QUANTILE * float(np.log(unexplained[usable] / total[usable]).std(ddof=1))
    return _about(float(errors.sum()) / float(totals.sum()), half, least)


def chance_half_width(exchanged: Float[np.ndarray, " exchange"]) -> float:
    """Half of the 95 % interval that log(1 − R²) has over exchanged labels, refitted.

    Where there is nothing to read a fit predicts nearly the mean in most samples and something in a few: one sample by
    itself looks more certain than it is. Refits on exchanged labels show the scatter.
    """
    unexplained = 1 - exchanged[exchanged < 1]
    return _QUANTILE * float(np.log(unexplained).std(ddof=1)) if len(unexplained) > 1 else 0.0


def _about(share: float, half: float, least: float) -> tuple[float, float] | None:
    """R² of an unexplained share, ± the larger half width of its logarithm; None where `half` is 0."""
    if half == 0 or share == 0:
        return None
    half = max(half, least)
    return 1 - share * float(np.exp(half)), 1 - share * float(np.exp(-half))


def label_by_type(
    types: Shaped[np.ndarray, " row"], labels: Float[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "row control"]:
    """`n` control tasks: every type of token is given one of the labels at random, wherever it occurs.

    Source: Hewitt and Liang 2019, arXiv 1909.03368.
    """
    names, codes = np.unique(types, return_inverse=True)
    return rng.choice(labels, size=(len(names), n))[codes]


@dataclass(frozen=True)
class Groups:
    """Which group each row is in and how many rows each group has; `mean` has a row of weights for each group."""

    code: Int[np.ndarray, " row"]
    counts: Int[np.ndarray, " group"]
    mean: sparse.csr_array

    @classmethod
    def of(cls, labels: Shaped[np.ndarray, " row"]) -> "Groups":
        _, code, counts = np.unique(labels, return_inverse=True, return_counts=True)
        mean = sparse.csr_array((1 / counts[code], (code, np.arange(len(code)))), shape=(len(counts), len(code)))
        return cls(code, counts, mean)

    def centred(self, values: Float[np.ndarray, "row any"]) -> Float[np.ndarray, "row any"]:
        """Values from the mean of their group."""
        return values - (self.mean @ values).astype(values.dtype, copy=False)[self.code]


@dataclass(frozen=True)
class Halving:
    """Rows to fit on and rows of other prompts to judge on, and what is taken out of both.

    With `groups` (of both halves' rows by token) each half is centred within them, else both from the mean of the
    fitting rows. Nuisances are regressed out after: `basis` is an orthonormal basis of them at the fitting rows, `told`
    the same combinations at the judged ones. `n_free` counts what freedom the fitting rows have left.
    """

    fitting: Int[np.ndarray, " fitted"]
    judged: Int[np.ndarray, " judged"]
    groups: tuple[Groups, Groups] | None
    basis: Float[np.ndarray, "fitted nuisance"]
    told: Float[np.ndarray, "judged nuisance"]
    n_free: int

    @classmethod
    def of(
        cls,
        fitting: Int[np.ndarray, " fitted"],
        judged: Int[np.ndarray, " judged"],
        nuisances: Float[np.ndarray, "row column"],
        tokens: Shaped[np.ndarray, " row"] | None = None,
    ) -> "Halving":
        """With `tokens` rows whose token does not recur in their half are left out."""
        n_means, groups = 1, None
        if tokens is not None:
            fitting, judged = (rows[recurs(tokens[rows])] for rows in (fitting, judged))
            groups = Groups.of(tokens[fitting]), Groups.of(tokens[judged])
            n_means = len(groups[0].counts)
        none = np.empty((len(fitting), 0)), np.empty((len(judged), 0))
        bare = cls(fitting, judged, groups, *none, len(fitting) - n_means)
        if not bare.is_usable or not nuisances.shape[1]:
            return bare
        fitted, others = bare.apply(nuisances)
        basis, combined = orthonormal(fitted)
        return replace(bare, basis=basis, told=others @ combined, n_free=bare.n_free - basis.shape[1])

    @property
    def is_usable(self) -> bool:
        """Whether there is anything to fit and to judge."""
        return self.n_free > 0 and len(self.judged) > 1

    def apply(self, values: np.ndarray) -> tuple[Float[np.ndarray, "fitted any"], Float[np.ndarray, "judged any"]]:
        """What is left of values of all rows, at the fitting and at the judged ones."""
        fitted, judged = values[self.fitting], values[self.judged]
        if self.groups is None:
            mean = fitted.mean(axis=0)
            fitted -= mean
            judged -= mean
        else:
            fitted, judged = self.groups[0].centred(fitted), self.groups[1].centred(judged)
        if self.basis.shape[1]:
            slopes = self.basis.T.astype(values.dtype) @ fitted
            fitted -= self.basis.astype(values.dtype) @ slopes
            judged -= self.told.astype(values.dtype) @ slopes
        return fitted, judged


def recurs(tokens: Shaped[np.ndarray, " row"]) -> np.ndarray:
    """Which rows have a token that another row has too."""
    _, code, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    return counts[code] > 1


def exchanges_within(
    cloud: Cloud, groups: Shaped[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows that exchange rows of one group; of sequences whole trajectories, whatever their groups.

    Rows of a sequence depend on one another: exchanged one by one they would give too narrow a null.
    """
    if not cloud.one_row_each:
        return shuffles(cloud.units, n, rng)
    code = np.unique(groups, return_inverse=True)[1]
    orders = np.empty((n, len(code)), dtype=np.int64)
    in_order = np.argsort(code, kind="stable")
    for order in orders:
        order[in_order] = np.lexsort((rng.random(len(code)), code))
    return orders


def r2_interval(values: Float[np.ndarray, " halving"], least: float = 0.0) -> tuple[float, float] | None:
    """95 % interval of a mean R² over halvings, symmetric on the scale of log(1 − R²); None without scatter.

    Never less to either side than `least`, a `chance_half_width`.
    """
    unexplained = 1 - values
    if not (unexplained > 0).all():
        return None
    return _about(float(unexplained.mean()), half_width(np.log(unexplained)), least)


def correlation_bounds(values: Float[np.ndarray, " halving"]) -> tuple[float, float] | None:
    """95 % interval of a mean correlation over halvings, symmetric on Fisher's z; None without scatter."""
    if not (np.abs(values) < 1).all():
        return None
    half, centre = half_width(np.arctanh(values)), float(np.arctanh(values.mean()))
    return (float(np.tanh(centre - half)), float(np.tanh(centre + half))) if half > 0 else None


def difference_bounds(values: Float[np.ndarray, " halving"]) -> tuple[float, float] | None:
    """95 % interval of a mean difference over halvings; None without scatter."""
    half, centre = half_width(values), float(values.mean())
    return (centre - half, centre + half) if half > 0 else None


def half_width(values: Sequence[float] | Float[np.ndarray, " halving"]) -> float:
    """Half the corrected resampled t interval: t √(1/R + judged/fitted) s, with as many judged as fitted on."""
    values = np.asarray(values)
    return float(_T * np.sqrt(1 / len(values) + 1) * values.std(ddof=1))
