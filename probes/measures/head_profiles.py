"""Means of what every head does, as columns of tables by layer and by head."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.units import Units, mean_of_units

from .profiles import head_columns
from .sign_flips import flip_p

Profile = Float[np.ndarray, "unit layer head"]


def profile_columns(
    units: Units, signs: np.ndarray, profiles: Mapping[str, Profile], *, gains: Collection[str], bare: Collection[str]
) -> tuple[dict[str, np.ndarray | Estimates], dict[str, np.ndarray | Estimates]]:
    """Means over units of every profile, by layer and by head; `gains` have a p from flipped signs, `bare` no band."""
    _, n_layers, n_heads = next(iter(profiles.values())).shape
    by_layer: dict[str, np.ndarray | Estimates] = {"layer": np.arange(n_layers)}
    by_head: dict[str, np.ndarray | Estimates] = {**head_columns(n_layers, n_heads)}
    for name, profile in profiles.items():
        for columns, values in ((by_layer, profile.mean(axis=2)), (by_head, profile.reshape(units.n, -1))):
            p = flip_p(values, signs) if name in gains else None
            columns[name] = mean_of_units(values) if name in bare else replace(units.estimates(values), p=p)
    return by_layer, by_head
