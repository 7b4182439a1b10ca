"""Repeated half splits: fits on one half of the prompts and tests on the other, with or without the last token's share.

Numbers are means over `N_HALF_SPLITS` random half splits (over twenty single ones an R² ran from .17 to .32), and
intervals contain the scatter of refitting (the corrected resampled t: Nadeau and Bengio 2003, doi
10.1023/A:1024068626366).

Beyond the last token: only rows whose last token recurs in their half, centred within the token in each half, which
removes exactly what the token determines; then other nuisances are regressed out, fitted on the fitting half.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy import sparse

from interp.statistics.resampling import ordered_within, shuffles, split_rows
from interp.statistics.ridge import PrincipalForm, RowAxes

from .cloud import Cloud
from .layers import ScaledRows, unit
from .nuisances import orthonormal

N_HALF_SPLITS = 10

_CANCELLED = 1e-5
"""Norm of what a half split leaves of the rows, relative to their own, below which it is rounding of the model's."""


def label_by_type(
    types: Shaped[np.ndarray, " row"], labels: Float[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "row control"]:
    """`n` control tasks: every type of token has one random label, wherever it occurs.

    Source: Hewitt and Liang 2019, arXiv 1909.03368.
    """
    names, codes = np.unique(types, return_inverse=True)
    return rng.choice(labels, size=(len(names), n))[codes]


@dataclass(frozen=True)
class Groups:
    """The group of each row and the size of each group; `mean` has a row of weights for each group."""

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
class HalfSplit:
    """Rows to fit on, held-out rows of other prompts, and what is removed from both.

    With `groups` (of both halves' rows by token) each half is centred within them, else both from the mean of the
    fitting rows. Nuisances are regressed out after: `basis` is an orthonormal basis of them at the fitting rows,
    `held_out_basis` the same combinations at the held-out ones. `n_free`: the freedom that the fitting rows have left.
    """

    fitting: Int[np.ndarray, " fitted"]
    held_out: Int[np.ndarray, " held_out"]
    groups: tuple[Groups, Groups] | None
    basis: Float[np.ndarray, "fitted nuisance"]
    held_out_basis: Float[np.ndarray, "held_out nuisance"]
    n_free: int

    @classmethod
    def of(
        cls,
        fitting: Int[np.ndarray, " fitted"],
        held_out: Int[np.ndarray, " held_out"],
        nuisances: Float[np.ndarray, "row column"],
        tokens: Shaped[np.ndarray, " row"] | None = None,
    ) -> "HalfSplit":
        """With `tokens`, rows whose token does not recur in their half are left out."""
        n_means, groups = 1, None
        if tokens is not None:
            fitting, held_out = (rows[recurs(tokens[rows])] for rows in (fitting, held_out))
            groups = Groups.of(tokens[fitting]), Groups.of(tokens[held_out])
            n_means = len(groups[0].counts)
        none = np.empty((len(fitting), 0)), np.empty((len(held_out), 0))
        bare = cls(fitting, held_out, groups, *none, len(fitting) - n_means)
        if not bare.is_usable or not nuisances.shape[1]:
            return bare
        fitted, others = bare.apply(nuisances)
        basis, combined = orthonormal(fitted)
        return replace(bare, basis=basis, held_out_basis=others @ combined, n_free=bare.n_free - basis.shape[1])

    @property
    def is_usable(self) -> bool:
        """Whether there are enough rows to fit and to test."""
        return self.n_free > 0 and len(self.held_out) > 1

    @cached_property
    def taken_out(self) -> Float[np.ndarray, "fitted axis"]:
        """An orthonormal basis of the means and nuisances that are removed from the fitting rows."""
        n = len(self.fitting)
        means = np.full((n, 1), n**-0.5)
        if self.groups is not None:
            means = self.groups[0].mean.T.toarray() * np.sqrt(self.groups[0].counts)
        return np.hstack([means, self.basis])

    def fitted(self, values: np.ndarray) -> Float[np.ndarray, "fitted any"]:
        """What is left of values of all rows, at the fitting ones."""
        return self._fitted(values)[0]

    def apply(self, values: np.ndarray) -> tuple[Float[np.ndarray, "fitted any"], Float[np.ndarray, "held_out any"]]:
        """What is left of values of all rows, at the fitting and at the held-out ones."""
        fitted, mean, slopes = self._fitted(values)
        held_out = values[self.held_out]
        if self.groups is None:
            held_out -= mean
        else:
            held_out = self.groups[1].centred(held_out)
        if len(slopes):
            held_out -= self.held_out_basis.astype(values.dtype) @ slopes
        return fitted, held_out

    def _fitted(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is left at the fitting rows, their mean, and the slopes on the nuisances."""
        fitted = values[self.fitting]
        mean = fitted.mean(axis=0)
        if self.groups is None:
            fitted -= mean
        else:
            fitted = self.groups[0].centred(fitted)
        basis = self.basis.astype(values.dtype)
        slopes = basis.T @ fitted
        if len(slopes):
            fitted -= basis @ slopes
        return fitted, mean, slopes


def half_splits_of(pool: Cloud, seed: int) -> list[HalfSplit]:
    """Random half splits of a cloud's clusters."""
    rng, nothing = np.random.default_rng(seed), np.empty((pool.rows.n_rows, 0))
    return [HalfSplit.of(*split_rows(pool.units, rng), nothing) for _ in range(N_HALF_SPLITS)]


def recurs(tokens: Shaped[np.ndarray, " row"]) -> np.ndarray:
    """Which rows have a token that another row has too."""
    _, code, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    return counts[code] > 1


def cloud_permutations(
    cloud: Cloud, groups: Shaped[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of the rows within groups; if rows depend on one another, of whole clusters whatever their groups."""
    return orders_within(groups, n, rng) if cloud.is_alone else shuffles(cloud.units, n, rng)


def orders_within(
    groups: Shaped[np.ndarray, " row"], n: int, rng: np.random.Generator
) -> Int[np.ndarray, "permutation row"]:
    """`n` orders of single rows within each group."""
    return ordered_within(groups, rng.random((n, len(groups))))


@dataclass(frozen=True)
class HalfForm:
    """Principal axes of the fitting rows. `weights` take coefficients on them to the columns of `others`.

    These are the held-out rows' features, or inner products with the fitting rows, after the half split's removal.
    `first` is the coordinate of all rows along the first axis, up to a constant.
    """

    axes: RowAxes
    weights: Float[np.ndarray, "column axis"]
    others: Float[np.ndarray, "held_out column"]
    first: Float[np.ndarray, "row 1"]

    @classmethod
    def of(cls, rows: ScaledRows, half_split: HalfSplit) -> "HalfForm | None":
        """None where the half split is not usable, or its removal leaves only rounding."""
        if not half_split.is_usable:
            return None
        least = _CANCELLED * float(np.linalg.norm(rows.points[half_split.fitting]))
        if rows.products is None or len(half_split.fitting) > rows.points.shape[1]:
            fitted, held_out = half_split.apply(rows.points)
            if np.linalg.norm(fitted) <= least:
                return None
            form = PrincipalForm.of(fitted)
            return cls(form, form.directions.T, held_out, rows.points @ form.directions[:1].T)
        fitted = half_split.fitted(rows.products)  # the other side is still all rows
        products, across = half_split.apply(fitted.T)
        if np.sqrt(max(0.0, float(np.trace(products)))) <= least:
            return None
        axes = RowAxes.of_products(products)
        weights = axes.left / axes.singular
        return cls(axes, weights, across, fitted.T @ weights[:, :1])

    @cached_property
    def held_out(self) -> Float[np.ndarray, "held_out axis"]:
        """The held-out rows along the axes."""
        return self.others @ self.weights

    def predicted(self, coefficients: Float[np.ndarray, "axis label"]) -> Float[np.ndarray, "held_out label"]:
        """What a readout of these coefficients on the axes predicts at the held-out rows."""
        return self.others @ (self.weights @ coefficients)

    def row_weights(self, coefficients: Float[np.ndarray, " axis *label"]) -> Float[np.ndarray, "fitted *label"]:
        """Weights of the fitting rows in the direction that has these coefficients on the first few axes."""
        n = len(coefficients)
        return self.axes.left[:, :n] @ (coefficients.T / self.axes.singular[:n]).T

    def direction(
        self, coefficients: Float[np.ndarray, " axis"], rows: ScaledRows, half_split: HalfSplit
    ) -> np.ndarray:
        """The unit direction in the space of the features that has these coefficients on the first few axes."""
        return unit(half_split.fitted(rows.points).T @ self.row_weights(coefficients))
