"""Findings in parts, and columns of tables by layer and by head."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from interp.findings import Scalar
from interp.statistics.estimates import Estimates
from interp.statistics.units import Units, mean_of_units
from interp.table import Table

from .sign_flips import harm_estimates

Profile = Float[np.ndarray, "unit layer head"]


@dataclass(frozen=True)
class Part:
    """A part of a probe's findings; notes say why something could not be measured."""

    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def head_columns(n_layers: int, n_heads: int) -> dict[str, np.ndarray]:
    """The layer and the head of each row of a table."""
    return {"layer": np.repeat(np.arange(n_layers), n_heads), "head": np.tile(np.arange(n_heads), n_layers)}


def profile_columns(
    units: Units,
    signs: np.ndarray,
    profiles: Mapping[str, Profile],
    pair: Iterable[str],
    *,
    gains: Collection[str],
    bare: Collection[str],
) -> tuple[dict[str, np.ndarray | Estimates], dict[str, np.ndarray | Estimates]]:
    """Means over units of every profile, by layer and by head; `gains` have a p from flipped signs, `bare` no band.

    By head, `turns` says where the `pair`, a gain and its variant without the first position, have opposite signs.
    """
    _, n_layers, n_heads = next(iter(profiles.values())).shape
    by_layer: dict[str, np.ndarray | Estimates] = {"layer": np.arange(n_layers)}
    by_head: dict[str, np.ndarray | Estimates] = {**head_columns(n_layers, n_heads)}
    for name, profile in profiles.items():
        for columns, values in ((by_layer, profile.mean(axis=2)), (by_head, profile.reshape(units.n, -1))):
            found = harm_estimates(values, units, signs if name in gains else None)
            columns[name] = found.value if name in bare else found
    whole, variant = (mean_of_units(profiles[name]).ravel() for name in pair)
    return by_layer, by_head | {"turns": whole * variant < 0}
