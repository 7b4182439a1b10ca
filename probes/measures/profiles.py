"""Findings in parts, and layer by layer: one scalar for every layer, and the table they make together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from interp.findings import Scalar
from interp.table import Table

Profile = Sequence[Scalar]
"""One statistic at every layer, in order."""


@dataclass(frozen=True)
class Part:
    """A part of what a probe found, to be joined into the findings; of what could not be measured a note says why."""

    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def profile_table(profiles: Mapping[str, Profile], n_distinct_rows: Sequence[int], caption: str) -> Table:
    """One row a layer; for every statistic its value, interval, null with band, and p where it was tested."""
    columns: dict[str, np.ndarray] = {
        "layer": np.arange(len(n_distinct_rows)),
        "n_distinct_rows": np.array(n_distinct_rows),
    }
    units = {"layer": "layer", "n_distinct_rows": "rows"}
    for name, profile in profiles.items():
        columns |= scalar_columns(name, profile, is_tested=any(s.p is not None for s in profile))
        units[name] = profile[0].unit
    return Table(columns, units, caption)


def head_columns(n_layers: int, n_heads: int, of: str = "head") -> dict[str, np.ndarray]:
    """Where each row of a table is that goes head by head, layer after layer."""
    return {"layer": np.repeat(np.arange(n_layers), n_heads), of: np.tile(np.arange(n_heads), n_layers)}


def scalar_columns(name: str, scalars: Sequence[Scalar], *, is_tested: bool) -> dict[str, np.ndarray]:
    """Value, interval and null of one scalar a row, of tested ones also p; NaN where there is none."""
    rows = [scalar.columns(name) for scalar in scalars]
    found = {column: np.array([row[column] for row in rows]) for column in rows[0]}
    if is_tested:
        found[f"{name}_p"] = np.array([np.nan if s.p is None else s.p for s in scalars])
    return found
