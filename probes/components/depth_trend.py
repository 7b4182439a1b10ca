"""Whether a curve over depth runs one way, prompt by prompt, and what depths in another order would give.

The trend is Spearman's ρ between depth and the curve of one row, averaged over rows: −1 where every row falls at
every step. The null puts the depths in another order, the same for all rows, since rows share the network and are no
independent evidence about its depth. With few depths there are few orders: all of them are taken, and p cannot be
smaller than two in their number.
"""

from dataclasses import dataclass
from itertools import permutations
from math import factorial

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.correlation import unit_ranks
from interp.statistics.resampling import random_orders

MIN_DEPTHS = 3
MIN_ORDERS = 40
"""Orders below which even a perfect trend has p > 0.05."""


@dataclass(frozen=True)
class DepthTrend:
    """ρ of every row, the mean ρ under other orders of the depths, and the two-sided p of the mean."""

    rho: Float[np.ndarray, " row"]
    shuffled: Float[np.ndarray, " order"]
    p: float

    @property
    def is_underpowered(self) -> bool:
        return len(self.shuffled) < MIN_ORDERS


def depth_trend(curves: Float[np.ndarray, "depth row"], n_orders: int, rng: np.random.Generator) -> DepthTrend:
    """The trend of curves over at least three depths; flat curves count as ρ = 0."""
    n_depths = len(curves)
    ranks = unit_ranks(curves.T)
    depth = unit_ranks(np.arange(n_depths)[None])[0]
    rho = ranks @ depth
    orders = depth_orders(n_depths, n_orders, rng)
    shuffled = np.round(depth[orders] @ ranks.mean(axis=0), 12)  # all orders together average to 0, not to 1e-17
    reached = int((np.abs(shuffled) >= abs(rho.mean()) - 1e-12).sum())
    if len(orders) == factorial(n_depths):
        return DepthTrend(rho, shuffled, reached / len(orders))
    return DepthTrend(rho, shuffled, (1 + reached) / (1 + len(orders)))


def depth_orders(n_depths: int, n_orders: int, rng: np.random.Generator) -> Int[np.ndarray, "order depth"]:
    """Every order of the depths where there are at most `n_orders`, else that many random ones."""
    if n_depths <= 12 and factorial(n_depths) <= n_orders:
        return np.array(list(permutations(range(n_depths))))
    return random_orders(n_depths, n_orders, rng)


def falling_share(curves: Float[np.ndarray, "depth row"]) -> Float[np.ndarray, "depth row"]:
    """1 where a row is lower than at the depth before, else 0; NaN at depth 0."""
    fell = (np.diff(curves, axis=0) < 0).astype(np.float64)
    return np.concatenate([np.full((1, curves.shape[1]), np.nan), fell])
