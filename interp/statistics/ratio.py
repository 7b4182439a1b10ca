"""Quotients of which there may be nothing to divide by."""

from typing import SupportsFloat

import numpy as np
from jaxtyping import Float


def ratio(part: np.ndarray | SupportsFloat, whole: np.ndarray | SupportsFloat) -> Float[np.ndarray, "*shape"]:
    """part / whole, broadcast; NaN where the whole is not above 0."""
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
