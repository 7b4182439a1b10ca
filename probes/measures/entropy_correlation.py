"""How a coordinate of each layer follows the entropy of the next token: rank correlations, tested over all layers."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Num, Shaped

from interp.statistics.correlation import rank_test, ranks_within, resampled_rank_correlations, unit_length, unit_ranks
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, maximum_statistic_p
from interp.statistics.resampling import bootstrap_weights, shuffles, split_rows

from .cloud import Cloud
from .halves import N_HALF_SPLITS, cloud_permutations, recurs
from .sample_sizes import FEW_FITTED, MIN_CLOUD, MIN_HALVES


@dataclass(frozen=True)
class Resampled:
    """The permutations and bootstrap weights of a cloud's rows, the same for all layers and statistics.

    `ranked`: the ranks under every permutation, where they are more than the same ones in another order.
    """

    orders: Int[np.ndarray, "permutation row"]
    weights: Num[np.ndarray, "resample row"]
    ranked: Float[np.ndarray, "permutation row"] | None = None


@dataclass(frozen=True)
class Order:
    """Whether coordinates of every layer and what is sought at the rows (`Cloud.target`) have one order."""

    cloud: Cloud
    coordinates: Float[np.ndarray, "layer row"]

    @classmethod
    def within(cls, groups: Shaped[np.ndarray, " row"], cloud: Cloud, coordinates: np.ndarray) -> "Order":
        """Both as ranks within each group: what the group alone explains is gone from both."""
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

    def resampled(self, n_permutations: int, n_bootstrap: int, seed: int) -> Resampled:
        """Whole prompts are exchanged, and drawn with replacement; where all are drawn, within the strata of that."""
        rng, cloud = np.random.default_rng(seed), self.cloud
        orders = shuffles(cloud.units, n_permutations, rng)
        strata = cloud.rows["stratum"] if cloud.rows["drawn"].all() else None
        return Resampled(orders, bootstrap_weights(cloud.units, strata, n_bootstrap, rng))

    @property
    def words(self) -> dict[str, str]:
        return self.cloud.slots | {"among": f"between {self.cloud.resampled}s"}

    def estimates(self, n_permutations: int, n_bootstrap: int, seed: int) -> Estimates:
        """|Spearman's ρ| at every layer, p over all layers.

        The coordinate's sign is arbitrary, so it is turned to make ρ positive; the interval is of that signed ρ and
        may reach below zero.
        """
        resampled = self.resampled(n_permutations, n_bootstrap, seed)
        sought = np.asarray(self.cloud.sought, dtype=np.float64)
        tested = rank_test(self.coordinates, sought, resampled.orders)
        if resampled.ranked is not None:
            permuted = np.abs(resampled.ranked @ unit_ranks(self.coordinates).T)
            tested = replace(tested, permuted=permuted, p=maximum_statistic_p(np.abs(tested.rho), permuted))
        replicates = resampled_rank_correlations(self.coordinates, sought, resampled.weights)
        turned = np.copysign(1.0, tested.rho)[:, None] * replicates
        found = Estimates.resampled(np.abs(tested.rho), turned.T, FISHER, about=self.cloud.counted, words=self.words)
        found = found.because(f"the coordinate or {self.cloud.target.name} never varies")
        return found.permuted(tested.permuted, tested.p)

    def best_layer(self, n_permutations: int, seed: int) -> Estimates:
        """ρ at the layer of the largest |ρ| on one half of the prompts, judged on the other, with its sign there.

        The mean over half splits. Ranks are those among all rows. Under each order the layer is chosen anew, so p needs
        no correction.
        """
        cloud, resampled = self.cloud, self.resampled(n_permutations, 1, seed)
        x, y = unit_ranks(self.coordinates), unit_ranks(cloud.sought[None])[0]
        exchanged = y[resampled.orders] if resampled.ranked is None else resampled.ranked
        together = np.vstack([y[None], exchanged])  # [1 + permutation, row]
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
            return Estimates.undefined(why, about=cloud.counted, words=self.words)
        by_half_split, layer = np.array(found), int(np.bincount(chosen).argmax())
        words = self.words | {"layer": str(layer), "share": f"{np.mean(np.array(chosen) == layer):.0%}"}
        permuted = by_half_split.mean(axis=0)[1:, None]
        return Estimates.halved(by_half_split[:, :1], FISHER, permuted=permuted, about=cloud.counted, words=words)


@dataclass(frozen=True)
class WithinToken(Order):
    """The rows whose last token recurs, as ranks within that token.

    `values`: what was sought before it was ranked; `enough`: how many prompts would do, where these are too few.
    """

    values: Float[np.ndarray, " row"]
    enough: int | None

    @classmethod
    def of(cls, cloud: Cloud, coordinates: Float[np.ndarray, "layer row"]) -> "WithinToken":
        again = recurs(cloud.rows["token"])
        mine = cloud.where(again)
        enough = -(-FEW_FITTED * cloud.n_units // mine.n_units) if 0 < mine.n_units < FEW_FITTED else None
        return cls(
            **vars(Order.within(mine.rows["token"], mine, coordinates[:, again])), values=mine.sought, enough=enough
        )

    def resampled(self, n_permutations: int, n_bootstrap: int, seed: int) -> Resampled:
        """Exchanged within tokens, of sequences whole ones.

        Clusters of prompts exchange their values, which are then ranked within tokens: ranks of a cluster that shares
        no token with another are all alike. Exchanged as they are, they would stand where the coordinates are not, and
        the null would be too narrow.
        """
        tokens, rng = self.cloud.rows["token"], np.random.default_rng([seed, 7])
        orders, ranked = cloud_permutations(self.cloud, tokens, n_permutations, rng), None
        if self.cloud.clusters is not None:
            ranked = unit_ranks(np.array([ranks_within(self.values[order], tokens) for order in orders]))
        return replace(super().resampled(1, n_bootstrap, seed), orders=orders, ranked=ranked)

    @property
    def words(self) -> dict[str, str]:
        return super().words | ({"among": "within tokens"} if self.cloud.is_alone else {})

    def estimates(self, n_permutations: int, n_bootstrap: int, seed: int) -> Estimates:
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(len(self.coordinates))
        return self._counted(super().estimates(n_permutations, n_bootstrap, seed))

    def best_layer(self, n_permutations: int, seed: int) -> Estimates:
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(1)
        return self._counted(super().best_layer(n_permutations, seed))

    def _undefined(self, n: int) -> Estimates:
        why = f"fewer than {MIN_CLOUD} {self.cloud.unit}s share their last token with another one"
        return Estimates.bare(np.full(n, np.nan), why=why, about=self.cloud.counted)

    def _counted(self, found: Estimates) -> Estimates:
        few = self.cloud.n_units < FEW_FITTED or found.about["underpowered"]
        return replace(found, about={**found.about, "underpowered": few, "enough": self.enough})
