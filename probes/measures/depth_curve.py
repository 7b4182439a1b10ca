"""How a curve runs over depth.

From the entropies (say) of all heads, averaged within each layer to a curve H(0) .. H(n − 1):

    reduction      (H(0) − H(n − 1)) / H(0)
    correlation    Spearman's ρ of H(ℓ) with ℓ
    area           ∫ H / H(0) over relative depth 0 .. 1 (trapezoids); 1 for a flat curve
    largest_drop   max over ℓ of H(ℓ) − H(ℓ + 1), in the unit of the curve

None of them has a p within one model. Heads of a layer resemble one another, and so do neighbouring layers: heads or
depths dealt at random are no null (at a correlation of .2 within layers that called up to 40 % of profiles without a
trend). What can be compared are models: several of them, or untrained copies.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from interp.findings import Interval, Scalar
from interp.statistics.correlation import unit_ranks
from interp.statistics.estimate import percentile_interval
from interp.statistics.ratio import ratio
from interp.statistics.units import Units

DEPTH = ("reduction", "correlation", "area", "largest_drop")
"""The statistics, in the order of the last axis of every array of them."""

FLAT: Mapping[str, float | None] = {"reduction": 0.0, "correlation": 0.0, "area": 1.0, "largest_drop": None}
"""What each is without a trend; the largest of several steps is above 0 then too, by an unknown amount."""

ONE_DRAW = "one model is one draw of a depth profile: compare three or more, or give --null untrained"
"""Why a number about the depth of one model has no null."""


def depth_statistics(curves: Float[np.ndarray, "*batch layer"]) -> Float[np.ndarray, "*batch statistic"]:
    """`DEPTH` of one or many curves; NaN over a single layer, and relative to a first layer of 0.

    Two layers have no correlation with depth: theirs is 1 or −1 whatever they are.
    """
    n_layers = curves.shape[-1]
    if n_layers < 2:
        return np.full((*curves.shape[:-1], len(DEPTH)), np.nan)
    first, last = curves[..., 0], curves[..., -1]
    flat = curves.reshape(-1, n_layers)
    trend = unit_ranks(flat) @ unit_ranks(np.arange(n_layers)[None])[0]
    area = np.trapezoid(curves, dx=1 / (n_layers - 1), axis=-1)
    trend = np.where((np.ptp(flat, axis=1) > 0) & (n_layers > 2), trend, np.nan).reshape(first.shape)
    drop = -np.diff(curves, axis=-1).min(axis=-1)
    return np.stack([ratio(first - last, first), trend, ratio(area, first), drop], axis=-1)


def depth_scalar(
    name: str, value: float, replicates: Float[np.ndarray, " resample"], units: Units, unit: str, meaning: str
) -> Scalar:
    """One of `DEPTH` with its interval over prompts, and why it has no null."""
    about = units.counted | {"meaning": meaning}
    if np.isnan(value):
        why = "undefined over a single layer (a correlation: over two), or where a first layer has no value"
        return Scalar.undefined(why, unit, **about)
    method = f"percentile bootstrap over {units.drawn}s within strata"
    held = Interval.of(percentile_interval(value, replicates), method, "undefined in every resample")
    return Scalar.of(value, unit, held, ONE_DRAW, reference=FLAT[name], **about)
