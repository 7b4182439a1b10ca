"""Rank correlations of a coordinate of each layer with the target, tested over all layers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from interp.statistics.correlation import ranks_within, resampled_rank_correlations, unit_length, unit_ranks
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, maximum_statistic_p
from interp.statistics.resampling import bootstrap_weights, shuffles, split_rows

from .cloud import Cloud
from .halves import N_HALF_SPLITS, cloud_permutations, recurs
from .sample_sizes import FEW_FITTED, MIN_CLOUD, MIN_HALVES, with_least


@dataclass(frozen=True)
class Order:
    """The rank correlation of coordinates `[layer, row]` with the target of a cloud."""

    cloud: Cloud
    coordinates: Float[np.ndarray, "layer row"]

    @classmethod
    def within(cls, groups: Shaped[np.ndarray, " row"], cloud: Cloud, coordinates: np.ndarray) -> "Order":
        """Both as ranks within each group, which removes what the group alone explains."""
        ranks = np.array([ranks_within(x, groups) for x in (*coordinates, np.asarray(cloud.sought, np.float64))])
        return cls(replace(cloud, rows=cloud.rows.with_column(cloud.target.name, ranks[-1], "rank")), ranks[:-1])

    @classmethod
    def within_position(cls, cloud: Cloud, coordinates: np.ndarray) -> "Order":
        return cls.within(cloud.rows["position"], cloud, coordinates)

    @property
    def rho(self) -> Float[np.ndarray, " layer"]:
        """Spearman's ρ at every layer; NaN without rows."""
        if not self.cloud.rows.n_rows:
            return np.full(len(self.coordinates), np.nan)
        return unit_ranks(self.coordinates) @ unit_ranks(self.cloud.sought[None])[0]

    def resampled(self, n_permutations: int, n_bootstrap: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Unit ranks of the target under every permutation of whole clusters, and the weights of every resample."""
        rng, cloud = np.random.default_rng(seed), self.cloud
        orders = shuffles(cloud.units, n_permutations, rng)
        strata = cloud.rows["stratum"] if cloud.rows["drawn"].all() else None
        # clusters of unequal size repeat rows
        permuted = unit_length(unit_ranks(cloud.sought[None])[0][orders])
        return permuted, bootstrap_weights(cloud.units, strata, n_bootstrap, rng)

    @property
    def words(self) -> dict[str, str]:
        return self.cloud.slots | {"among": f"between {self.cloud.resampled}s"}

    @property
    def about(self) -> dict[str, Any]:
        return self.cloud.counted

    def estimates(self, n_permutations: int, n_bootstrap: int, seed: int) -> Estimates:
        """|Spearman's ρ| at every layer, p over all layers.

        The coordinate is turned so that ρ is positive; the interval is of that signed ρ and may reach below zero.
        """
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(len(self.coordinates))
        ranks, weights = self.resampled(n_permutations, n_bootstrap, seed)
        x, sought = unit_ranks(self.coordinates), np.asarray(self.cloud.sought, dtype=np.float64)
        varies = x.any(axis=1) & (np.ptp(sought) > 0)
        rho, permuted = np.where(varies, self.rho, np.nan), np.abs(ranks @ x.T)
        turned = np.copysign(1.0, rho)[:, None] * resampled_rank_correlations(self.coordinates, sought, weights)
        found = Estimates.resampled(np.abs(rho), turned.T, FISHER, about=self.about, words=self.words)
        found = found.because(f"the coordinate or {self.cloud.target.name} never varies")
        return found.permuted(permuted, maximum_statistic_p(np.abs(rho), permuted))

    def best_layer(self, n_permutations: int, seed: int) -> Estimates:
        """ρ in one half of the prompts at the layer (and with the sign) of the largest |ρ| in the other half.

        The mean over half splits. The layer is chosen again under each permutation, so p needs no correction.
        """
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(1)
        cloud, (permuted, _) = self.cloud, self.resampled(n_permutations, 1, seed)
        x, y = unit_ranks(self.coordinates), unit_ranks(cloud.sought[None])
        together = np.vstack([y, permuted])  # [1 + permutation, row]
        rng = np.random.default_rng([seed, 8])
        found, chosen = [], []
        for _ in range(N_HALF_SPLITS if cloud.n_units >= MIN_HALVES else 0):
            # [order, layer]; 0 where either never varies in a half
            halves = split_rows(cloud.units, rng)
            choosing, judging = (unit_length(together[:, rows]) @ unit_length(x[:, rows]).T for rows in halves)
            best = np.abs(choosing).argmax(axis=1)[:, None]
            sign = np.sign(np.take_along_axis(choosing, best, axis=1))
            found.append((sign * np.take_along_axis(judging, best, axis=1))[:, 0])
            chosen.append(int(best[0, 0]))
        if not found or not x.any() or not y.any():
            why = "the coordinate or the entropy never varies" if found else f"too few {cloud.unit}s for halves"
            return Estimates.undefined(why, about=self.about, words=self.words)
        by_half_split, layer = np.array(found), int(np.bincount(chosen).argmax())
        words = self.words | {"layer": str(layer), "share": f"{np.mean(np.array(chosen) == layer):.0%}"}
        permuted = by_half_split.mean(axis=0)[1:, None]
        return Estimates.halved(by_half_split[:, :1], FISHER, permuted=permuted, about=self.about, words=words)

    def _undefined(self, n: int) -> Estimates:
        """Rows are left out within tokens alone."""
        why = f"fewer than {MIN_CLOUD} {self.cloud.unit}s share their last token with another one"
        return Estimates.bare(np.full(n, np.nan), why=why, about=self.about)


@dataclass(frozen=True)
class WithinToken(Order):
    """The rows whose last token recurs, as ranks within that token.

    `values` are the target before ranking; the rows are those of a cloud of `n_all` clusters.
    """

    values: Float[np.ndarray, " row"]
    n_all: int

    @classmethod
    def of(cls, cloud: Cloud, coordinates: Float[np.ndarray, "layer row"]) -> "WithinToken":
        again = recurs(cloud.rows["token"])
        mine = cloud.where(again)
        order = Order.within(mine.rows["token"], mine, coordinates[:, again])
        return cls(**vars(order), values=mine.sought, n_all=cloud.n_units)

    def resampled(self, n_permutations: int, n_bootstrap: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Permuted within tokens, or whole sequences and clusters.

        Clusters permute values, which are then ranked within tokens. Permuted ranks would be constant for a cluster
        that shares no token with another, and the null too narrow.
        """
        tokens, (_, weights) = self.cloud.rows["token"], super().resampled(1, n_bootstrap, seed)
        orders = cloud_permutations(self.cloud, tokens, n_permutations, np.random.default_rng([seed, 7]))
        if self.cloud.clusters is None:
            return unit_length(unit_ranks(self.cloud.sought[None])[0][orders]), weights
        return unit_ranks(np.array([ranks_within(self.values[order], tokens) for order in orders])), weights

    @property
    def words(self) -> dict[str, str]:
        return super().words | ({"among": "within tokens"} if self.cloud.is_alone else {})

    @property
    def about(self) -> dict[str, Any]:
        return with_least(super().about, self.cloud.n_units, FEW_FITTED, self.n_all)
