"""Statistics of a curve H(0) .. H(n − 1) over depth, such as the mean entropy of the heads of each layer.

    reduction      (H(0) − H(n − 1)) / H(0)
    correlation    Spearman's ρ of H(ℓ) with ℓ
    area           ∫ H / H(0) over relative depth 0 .. 1 (trapezoids); 1 for a flat curve
    largest_drop   max over ℓ of H(ℓ) − H(ℓ + 1), in the unit of the curve

None has a p within one model: heads of a layer are correlated, and so are neighbouring layers, so that permuting them
is no null (with correlations of .2 within layers, up to 40 % of profiles without a trend were significant). Compare
several models, or untrained copies.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.statistics.correlation import unit_ranks
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantity
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units

from .sign_flips import MEAN_METHOD

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


def depth_estimates(profile: Float[np.ndarray, "unit layer"], units: Units) -> dict[str, Estimates]:
    """`DEPTH` of the mean curve over units, with intervals over prompts.

    The largest drop is of the step that is largest in the data, in every resample: choosing it again each time would
    inflate it.
    """
    curve, resampled = mean_of_units(profile), units.resampled(profile)
    replicates = depth_statistics(resampled)
    if len(curve) > 1:
        step = int(np.diff(curve).argmin())
        replicates[:, DEPTH.index("largest_drop")] = resampled[:, step] - resampled[:, step + 1]
    values = depth_statistics(curve)
    why = "undefined over a single layer (a correlation: over two), or where a first layer has no value"
    found = units.about(Estimates.resampled(values, replicates).because(why))
    return {name: found.at([i]) for i, name in enumerate(DEPTH)}


def depth_quantity(name: str, meaning: str, unit: str = "1", **marks: Any) -> Quantity:
    """One of `DEPTH`, and why it has no null."""
    return Quantity(
        unit, meaning, ONE_DRAW, MEAN_METHOD, "undefined in every resample", "nothing", reference=FLAT[name], **marks
    )
