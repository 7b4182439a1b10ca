"""A few paired differences: p by flipping their signs, all ways there are.

Without an effect each difference is as likely positive as negative. n of them have 2ⁿ patterns of sign; the one that
was seen and its mirror image are always among them, so that no p is smaller than 2 / 2ⁿ.
"""

from functools import lru_cache
from itertools import product

import numpy as np
from jaxtyping import Float

MAX_EXACT = 14
"""Differences whose patterns are all taken; of more, `_N_DRAWN` are drawn."""

_N_DRAWN = 9_999


def sign_flip_p(differences: Float[np.ndarray, " unit"]) -> float:
    """p of the mean difference, two-sided; NaN without any."""
    n = len(differences)
    if n == 0:
        return float("nan")
    flipped = np.abs(_signs(n) @ differences)
    slack = 1e-12 * np.abs(differences).sum()
    reached = int((flipped >= abs(differences.sum()) - slack).sum())
    return reached / len(flipped) if n <= MAX_EXACT else (1 + reached) / (1 + len(flipped))


def smallest_p(n: int) -> float:
    """The smallest p that `n` differences can reach."""
    return 2.0 ** (1 - n) if n <= MAX_EXACT else 1 / (1 + _N_DRAWN)


@lru_cache
def _signs(n: int) -> Float[np.ndarray, "pattern unit"]:
    """Every pattern up to its mirror image, or random ones."""
    if n <= MAX_EXACT:
        return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=n - 1)])
    return np.random.default_rng(n).choice([-1.0, 1.0], size=(_N_DRAWN, n))
