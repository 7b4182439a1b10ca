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

    @classmethod
    def of(cls, cloud: Cloud, n_permutations: int, n_bootstrap: int, seed: int) -> "Resampled":
        """Whole prompts are exchanged, and drawn with replacement; where all are drawn, within the strata of that."""
        rng = np.random.default_rng(seed)
        orders = shuffles(cloud.units, n_permutations, rng)
        strata = cloud.rows["stratum"] if cloud.rows["drawn"].all() else None
        return cls(orders, bootstrap_weights(cloud.units, strata, n_bootstrap, rng))


def correlation_estimates(
    coordinates: Float[np.ndarray, "layer row"], column: str, cloud: Cloud, resampled: Resampled
) -> Estimates:
    """|Spearman's ρ| of each layer's coordinate with a column of the rows.

    The coordinate's sign is arbitrary, so it is turned to make ρ positive; the interval is of that signed ρ and may
    reach below zero. p is over all layers.
    """
    variable = np.asarray(cloud.rows[column], dtype=np.float64)
    tested = rank_test(coordinates, variable, resampled.orders)
    if resampled.ranked is not None:
        permuted = np.abs(resampled.ranked @ unit_ranks(coordinates).T)
        tested = replace(tested, permuted=permuted, p=maximum_statistic_p(np.abs(tested.rho), permuted))
    replicates = resampled_rank_correlations(coordinates, variable, resampled.weights)
    turned = np.copysign(1.0, tested.rho)[:, None] * replicates
    words = cloud.slots | {"among": f"between {cloud.resampled}s"}
    found = Estimates.resampled(np.abs(tested.rho), turned.T, FISHER, about=cloud.counted, words=words)
    found = found.because(f"the coordinate or {column} never varies")
    return found.permuted(tested.permuted, tested.p)


def within_groups(
    coordinates: Float[np.ndarray, "layer row"], column: str, cloud: Cloud, groups: Shaped[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, "layer row"], Cloud]:
    """Coordinates and column as ranks within each group: what the group alone explains is gone from both."""
    residual = np.array([ranks_within(coordinate, groups) for coordinate in coordinates])
    ranks = ranks_within(np.asarray(cloud.rows[column], dtype=np.float64), groups)
    rows = cloud.rows.with_column(column, ranks, "rank")
    return residual, replace(cloud, rows=rows)


@dataclass(frozen=True)
class WithinToken:
    """Coordinates and entropies of the rows whose last token recurs, as ranks within that token.

    `values`: what the entropies were before they were ranked.
    """

    coordinates: Float[np.ndarray, "layer row"]
    cloud: Cloud
    values: Float[np.ndarray, " row"]
    enough: int | None

    @classmethod
    def of(cls, cloud: Cloud, coordinates: Float[np.ndarray, "layer row"]) -> "WithinToken":
        again = recurs(cloud.rows["token"])
        mine = cloud.where(again)
        few = FEW_FITTED * cloud.n_units
        enough = -(-few // mine.n_units) if 0 < mine.n_units < FEW_FITTED else None
        residual, ranked = within_groups(coordinates[:, again], mine.target.name, mine, mine.rows["token"])
        return cls(residual, ranked, mine.sought, enough)

    def estimates(self, n_permutations: int, n_bootstrap: int, seed: int) -> Estimates:
        """`correlation_estimates` of the ranks; exchanged within tokens, of sequences whole ones."""
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(len(self.coordinates))
        resampled = self._resampled(n_permutations, n_bootstrap, seed)
        return self._counted(correlation_estimates(self.coordinates, self.cloud.target.name, self.cloud, resampled))

    def best_layer(self, n_permutations: int, seed: int) -> Estimates:
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(1)
        resampled = self._resampled(n_permutations, 1, seed)
        return self._counted(best_layer(self.coordinates, self.cloud.sought, self.cloud, resampled, seed))

    def _resampled(self, n_permutations: int, n_bootstrap: int, seed: int) -> Resampled:
        """Clusters of prompts exchange their values, which are then ranked within tokens.

        Ranks of a cluster that shares no token with another are all alike: exchanged as they are, they would stand
        where the coordinates are not, and the null would be too narrow.
        """
        tokens, rng = self.cloud.rows["token"], np.random.default_rng([seed, 7])
        orders, ranked = cloud_permutations(self.cloud, tokens, n_permutations, rng), None
        if self.cloud.clusters is not None:
            ranked = unit_ranks(np.array([ranks_within(self.values[order], tokens) for order in orders]))
        return replace(Resampled.of(self.cloud, 1, n_bootstrap, seed), orders=orders, ranked=ranked)

    def _undefined(self, n: int) -> Estimates:
        why = f"fewer than {MIN_CLOUD} {self.cloud.unit}s share their last token with another one"
        return Estimates.bare(np.full(n, np.nan), why=why, about=self.cloud.counted)

    def _counted(self, found: Estimates) -> Estimates:
        words = {**found.words, "among": "within tokens"} if self.cloud.is_alone else found.words
        few = self.cloud.n_units < FEW_FITTED or found.about["underpowered"]
        return replace(found, words=words, about={**found.about, "underpowered": few, "enough": self.enough})


def best_layer(
    coordinates: Float[np.ndarray, "layer row"], variable: Float[np.ndarray, " row"], cloud: Cloud,
    resampled: Resampled, seed: int,
) -> Estimates:  # fmt: skip
    """ρ at the layer of the largest |ρ| on one half of the prompts, judged on the other, with its sign there.

    The mean over half splits. Ranks are those among all rows. Under each order the layer is chosen anew, so p needs no
    correction.
    """
    x, y = unit_ranks(coordinates), unit_ranks(variable[None])[0]
    exchanged = y[resampled.orders] if resampled.ranked is None else resampled.ranked
    together = np.vstack([y[None], exchanged])  # [1 + permutation, row]
    rng = np.random.default_rng([seed, 8])
    found, chosen = [], []
    for _ in range(N_HALF_SPLITS if cloud.n_units >= MIN_HALVES else 0):
        # [order, layer]; 0 where either never varies in a half
        choosing, judging = (unit_length(together[:, r]) @ unit_length(x[:, r]).T for r in split_rows(cloud.units, rng))
        best = np.abs(choosing).argmax(axis=1)[:, None]
        sign = np.sign(np.take_along_axis(choosing, best, axis=1))
        found.append((sign * np.take_along_axis(judging, best, axis=1))[:, 0])
        chosen.append(int(best[0, 0]))
    words = cloud.slots | {"among": f"between {cloud.resampled}s"}
    if not found or not x.any() or not y.any():
        why = "the coordinate or the entropy never varies" if found else f"too few {cloud.unit}s for halves"
        return Estimates.undefined(why, about=cloud.counted, words=words)
    by_half_split, layer = np.array(found), int(np.bincount(chosen).argmax())
    words |= {"layer": str(layer), "share": f"{np.mean(np.array(chosen) == layer):.0%}"}
    permuted = by_half_split.mean(axis=0)[1:, None]
    return Estimates.halved(by_half_split[:, :1], FISHER, permuted=permuted, about=cloud.counted, words=words)
