"""How a curve runs over depth, and what heads dealt to layers at random would give.

From the entropies (say) of all heads, averaged within each layer to a curve H(0) .. H(n − 1):

    reduction      (H(0) − H(n − 1)) / H(0)
    correlation    Spearman's ρ of H(ℓ) with ℓ
    area           ∫ H / H(0) over relative depth 0 .. 1 (trapezoids); 1 for a flat curve
    largest_drop   max over ℓ of H(ℓ) − H(ℓ + 1), in the unit of the curve

The null deals the heads' own values to the layers at random: depth then means nothing, and end points and steps
still come out as unequal as heads are. It takes heads as exchangeable; heads of neighbouring layers that resemble
one another make it lenient, so p is a bound on luck and not a proof of a mechanism.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.statistics.correlation import unit_ranks
from interp.statistics.max_statistic import maximum_statistic_p
from interp.statistics.ratio import ratio

DEPTH = ("reduction", "correlation", "area", "largest_drop")
"""The statistics, in the order of the last axis of every array of them."""

_ONE_SIDED = np.array([name == "largest_drop" for name in DEPTH])


@dataclass(frozen=True)
class DealtHeads:
    """Depth statistics of a profile `[layer, head]`, and of the same heads dealt to layers at random.

    `p` is two-sided (twice the smaller tail: ratios are skewed), but counts only larger ones for the largest drop,
    where the dealings already allow for the choice of the step. `layer_p` is for each layer's distance from the mean
    of all layers, corrected over the layers.
    """

    values: Float[np.ndarray, " statistic"]
    dealt: Float[np.ndarray, "permutation statistic"]
    p: Float[np.ndarray, " statistic"]
    layer_p: Float[np.ndarray, " layer"]


def depth_statistics(curves: Float[np.ndarray, "*batch layer"]) -> Float[np.ndarray, "*batch statistic"]:
    """`DEPTH` of one or many curves; NaN over a single layer, and relative to a first layer of 0."""
    n_layers = curves.shape[-1]
    if n_layers < 2:
        return np.full((*curves.shape[:-1], len(DEPTH)), np.nan)
    first, last = curves[..., 0], curves[..., -1]
    flat = curves.reshape(-1, n_layers)
    trend = unit_ranks(flat) @ unit_ranks(np.arange(n_layers)[None])[0]
    area = np.trapezoid(curves, dx=1 / (n_layers - 1), axis=-1)
    trend = np.where(np.ptp(flat, axis=1) > 0, trend, np.nan).reshape(first.shape)
    drop = -np.diff(curves, axis=-1).min(axis=-1)
    return np.stack([ratio(first - last, first), trend, ratio(area, first), drop], axis=-1)


def deal_heads(profile: Float[np.ndarray, "layer head"], n: int, rng: np.random.Generator) -> DealtHeads:
    """Compare a profile with `n` random dealings of its heads."""
    n_layers, n_heads = profile.shape
    dealt = rng.permuted(np.tile(profile.ravel(), (n, 1)), axis=1).reshape(n, n_layers, n_heads).mean(axis=2)
    curve = profile.mean(axis=1)
    values, chance = depth_statistics(curve), depth_statistics(dealt)
    above, below = _tail(values, chance), _tail(-values, -chance)
    p = np.where(_ONE_SIDED, above, np.minimum(1.0, 2 * np.minimum(above, below)))
    return DealtHeads(values, chance, p, _layer_p(curve, dealt))


def _layer_p(curve: np.ndarray, dealt: np.ndarray) -> np.ndarray:
    return maximum_statistic_p(np.abs(curve - curve.mean()), np.abs(dealt - dealt.mean(axis=1, keepdims=True)))


def _tail(observed: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The share of chance values at least as large, the observed one counted among them."""
    slack = 1e-12 * np.maximum(1.0, np.abs(np.nan_to_num(observed)))
    reached = (chance >= observed - slack).sum(axis=0)
    return np.where(np.isnan(observed), np.nan, (1 + reached) / (1 + len(chance)))
