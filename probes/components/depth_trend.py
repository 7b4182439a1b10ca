"""Whether a curve over depth runs one way, prompt by prompt.

The trend is Spearman's ρ between depth and the curve of one row, averaged over rows: −1 where every row falls at every
step. It has no p within one model: all rows share the network, and neighbouring depths resemble one another, so that
depths in another order are no null (see `measures.depth_curve`).
"""

import numpy as np
from jaxtyping import Float

from interp.statistics.correlation import unit_ranks

MIN_DEPTHS = 3
"""Over two depths every curve has a trend of −1 or 1."""


def depth_trend(curves: Float[np.ndarray, "depth row"]) -> Float[np.ndarray, " row"]:
    """The trend of every row; a flat one counts as 0."""
    return unit_ranks(curves.T) @ unit_ranks(np.arange(len(curves))[None])[0]


def falling_share(curves: Float[np.ndarray, "depth row"]) -> Float[np.ndarray, "depth row"]:
    """1 where a row is lower than at the depth before, else 0; NaN at depth 0."""
    fell = (np.diff(curves, axis=0) < 0).astype(np.float64)
    return np.concatenate([np.full((1, curves.shape[1]), np.nan), fell])
