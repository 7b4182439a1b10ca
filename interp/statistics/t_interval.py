"""Independent repetitions, such as seeds or draws: how far their mean may be off."""

import numpy as np
from jaxtyping import Float
from scipy import special


def t_half_width(values: Float[np.ndarray, "*shape repeat"]) -> Float[np.ndarray, "*shape"]:
    """Half the 95 % t interval of the mean over the last axis, in the values' unit; NaN for fewer than two."""
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(special.stdtrit(n - 1, 0.975) * values.std(axis=-1, ddof=1) / np.sqrt(n))
