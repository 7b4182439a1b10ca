"""How a coordinate of each layer follows the entropy of the next token: rank correlations, tested over all layers."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Interval, Scalar
from interp.statistics.correlation import correlation_interval, rank_test, ranks_within, resampled_rank_correlations
from interp.statistics.nulls import null_from_permutations
from interp.statistics.resampling import bootstrap_weights, shuffles

from .cloud import Cloud


@dataclass(frozen=True)
class Resampled:
    """The permutations and bootstrap weights of a cloud's rows, the same for all layers and statistics."""

    orders: Int[np.ndarray, "permutation row"]
    weights: Int[np.ndarray, "resample row"]

    @classmethod
    def of(cls, cloud: Cloud, n_permutations: int, n_bootstrap: int, seed: int) -> "Resampled":
        """Whole prompts are exchanged, and drawn with replacement within the strata of the draw."""
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
    method = f"bootstrap over {cloud.unit}s within strata, the coordinate held fixed, Fisher z scale"
    for layer, rho in enumerate(tested.rho):
        if np.isnan(rho):
            reason = f"the coordinate or {column} never varies"
            scalars.append(Scalar.undefined(reason, underpowered=True, meaning=meaning, **cloud.counted))
            continue
        bounds = correlation_interval(abs(float(rho)), np.copysign(1.0, rho) * replicates[layer])
        interval = Interval.of(bounds, method, "every resample gives the same value")
        null = null_from_permutations(f"entropies exchanged between {cloud.unit}s", tested.permuted[:, layer])
        scalars.append(
            Scalar.of(abs(rho), "1", interval, null, p=tested.p[layer], p_over="layers", meaning=meaning,
                      **cloud.counted)
        )  # fmt: skip
    return scalars


def within_position(
    coordinates: Float[np.ndarray, "layer row"], column: str, cloud: Cloud
) -> tuple[Float[np.ndarray, "layer row"], Cloud]:
    """Coordinates and column as ranks within each position: what position alone explains is gone from both."""
    positions = cloud.rows["position"]
    residual = np.array([ranks_within(coordinate, positions) for coordinate in coordinates])
    ranks = ranks_within(np.asarray(cloud.rows[column], dtype=np.float64), positions)
    rows = cloud.rows.with_column(column, ranks, "rank")
    return residual, Cloud(cloud.points, rows, cloud.unit)
