"""How a coordinate of each layer follows the entropy of the next token: rank correlations, tested over all layers."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Shaped

from interp.findings import Interval, Scalar
from interp.statistics.correlation import rank_test, ranks_within, resampled_rank_correlations, unit_length, unit_ranks
from interp.statistics.estimate import FISHER, halving_interval, normal_interval, null_from_permutations
from interp.statistics.resampling import bootstrap_weights, shuffles, split_rows

from .cloud import Cloud
from .halves import N_HALVINGS, exchanges_within, recurs
from .sample_sizes import FEW_FITTED, MIN_CLOUD, MIN_HALVES


@dataclass(frozen=True)
class Resampled:
    """The permutations and bootstrap weights of a cloud's rows, the same for all layers and statistics."""

    orders: Int[np.ndarray, "permutation row"]
    weights: Int[np.ndarray, "resample row"]

    @classmethod
    def of(cls, cloud: Cloud, n_permutations: int, n_bootstrap: int, seed: int) -> "Resampled":
        """Whole prompts are exchanged, and drawn with replacement; drawn ones within the strata of the draw."""
        rng = np.random.default_rng(seed)
        orders = shuffles(cloud.units, n_permutations, rng)
        return cls(orders, bootstrap_weights(cloud.units, cloud.rows["stratum"], n_bootstrap, rng))


def correlation_profile(
    coordinates: Float[np.ndarray, "layer row"], column: str, cloud: Cloud, resampled: Resampled, meaning: str
) -> list[Scalar]:
    """|Spearman's ρ| of each layer's coordinate with a column of the rows.

    The coordinate's sign is arbitrary, so it is turned to make ρ positive; the interval is of that signed ρ and may
    reach below zero. p is over all layers.
    """
    variable = np.asarray(cloud.rows[column], dtype=np.float64)
    tested = rank_test(coordinates, variable, resampled.orders)
    replicates = resampled_rank_correlations(coordinates, variable, resampled.weights)
    scalars = []
    method = f"bootstrap over {cloud.resampled}s within strata, the coordinate held fixed, Fisher z scale"
    for layer, rho in enumerate(tested.rho):
        if np.isnan(rho):
            reason = f"the coordinate or {column} never varies"
            scalars.append(Scalar.undefined(reason, underpowered=True, meaning=meaning, **cloud.counted))
            continue
        bounds = normal_interval(abs(float(rho)), np.copysign(1.0, rho) * replicates[layer], FISHER)
        interval = Interval.of(bounds, method, "every resample gives the same value")
        null = null_from_permutations(f"entropies permuted between {cloud.resampled}s", tested.permuted[:, layer])
        scalars.append(
            Scalar.of(abs(rho), "1", interval, null, p=tested.p[layer], p_over="layers", meaning=meaning,
                      **cloud.counted)
        )  # fmt: skip
    return scalars


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
    """Coordinates and entropies of the rows whose last token recurs, as ranks within that token."""

    coordinates: Float[np.ndarray, "layer row"]
    cloud: Cloud
    tokens: Int[np.ndarray, " row"]
    enough: int | None

    @classmethod
    def of(cls, cloud: Cloud, coordinates: Float[np.ndarray, "layer row"]) -> "WithinToken":
        again = recurs(cloud.rows["token"])
        mine = cloud.where(again)
        few = FEW_FITTED * cloud.n_units
        enough = -(-few // mine.n_units) if 0 < mine.n_units < FEW_FITTED else None
        tokens = mine.rows["token"]
        residual, ranked = within_groups(coordinates[:, again], mine.target.name, mine, tokens)
        return cls(residual, ranked, tokens, enough)

    def profile(self, n_permutations: int, n_bootstrap: int, seed: int, meaning: str) -> list[Scalar]:
        """`correlation_profile` of the ranks; permuted within tokens, of sequences whole ones."""
        if self.cloud.n_units < MIN_CLOUD:
            return [self._undefined(meaning) for _ in self.coordinates]
        weights = Resampled.of(self.cloud, 1, n_bootstrap, seed).weights
        resampled = Resampled(self._orders(n_permutations, seed), weights)
        found = correlation_profile(self.coordinates, self.cloud.target.name, self.cloud, resampled, meaning)
        return [self._counted(scalar) for scalar in found]

    def best_layer(self, n_permutations: int, seed: int, meaning: str) -> Scalar:
        if self.cloud.n_units < MIN_CLOUD:
            return self._undefined(meaning)
        orders = self._orders(n_permutations, seed)
        return self._counted(best_layer(self.coordinates, self.cloud.sought, self.cloud, orders, seed, meaning))

    def _orders(self, n: int, seed: int) -> Int[np.ndarray, "permutation row"]:
        return exchanges_within(self.cloud, self.tokens, n, np.random.default_rng([seed, 7]))

    def _undefined(self, meaning: str) -> Scalar:
        reason = f"fewer than {MIN_CLOUD} {self.cloud.unit}s share their last token with another one"
        return Scalar.undefined(reason, underpowered=True, meaning=meaning, **self.cloud.counted)

    def _counted(self, scalar: Scalar) -> Scalar:
        null = scalar.null
        if null is not None and self.cloud.is_alone:
            null = replace(null, name="entropies permuted within tokens")
        few = self.cloud.n_units < FEW_FITTED
        return replace(scalar, null=null, underpowered=scalar.underpowered or few, enough=self.enough)


def best_layer(
    coordinates: Float[np.ndarray, "layer row"], variable: Float[np.ndarray, " row"], cloud: Cloud,
    orders: Int[np.ndarray, "permutation row"], seed: int, meaning: str,
) -> Scalar:  # fmt: skip
    """ρ at the layer of the largest |ρ| on one half of the prompts, judged on the other, with its sign there.

    The mean over half splits. Ranks are those among all rows. Under each order the layer is chosen anew, so p needs no
    correction.
    """
    x, y = unit_ranks(coordinates), unit_ranks(variable[None])[0]
    together = np.vstack([y[None], y[orders]])  # [1 + permutation, row]
    rng = np.random.default_rng([seed, 8])
    found, chosen = [], []
    for _ in range(N_HALVINGS if cloud.n_units >= MIN_HALVES else 0):
        choosing, judging = (_half_correlations(x[:, r], together[:, r]) for r in split_rows(cloud.units, rng))
        best = np.abs(choosing).argmax(axis=1)[:, None]
        sign = np.sign(np.take_along_axis(choosing, best, axis=1))
        found.append((sign * np.take_along_axis(judging, best, axis=1))[:, 0])
        chosen.append(int(best[0, 0]))
    if not found or not x.any() or not y.any():
        reason = "the coordinate or the entropy never varies" if found else f"too few {cloud.unit}s for halves"
        return Scalar.undefined(reason, underpowered=True, meaning=meaning, **cloud.counted)
    by_halving = np.array(found)
    value, *permuted = by_halving.mean(axis=0)
    layer = int(np.bincount(chosen).argmax())
    words = (
        f"At the layer best on the other half of the {cloud.unit}s, {meaning[0].lower()}{meaning[1:]} Layer {layer} in "
        f"{np.mean(np.array(chosen) == layer):.0%} of the half splits."
    )
    method = "corrected resampled t over half splits, Fisher z scale"
    interval = Interval.of(halving_interval(by_halving[:, 0], FISHER), method, "no half split differs")
    null = null_from_permutations(
        f"entropies permuted between {cloud.resampled}s, the layer chosen anew", np.array(permuted)
    )
    p = (1 + (np.array(permuted) >= value - 1e-12).sum()) / (1 + len(permuted))
    return Scalar.of(value, "1", interval, null, p=p, meaning=words, **cloud.counted)


def _half_correlations(
    x: Float[np.ndarray, "layer row"], y: Float[np.ndarray, "order row"]
) -> Float[np.ndarray, "order layer"]:
    """Pearson's correlation of every order with every layer on some rows; 0 where either never varies there."""
    return unit_length(y) @ unit_length(x).T
