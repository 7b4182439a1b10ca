"""Findings in parts, and where the rows of tables by head are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from interp.findings import Scalar
from interp.table import Table


@dataclass(frozen=True)
class Part:
    """A part of what a probe found, to be joined into the findings; of what could not be measured a note says why."""

    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def head_columns(n_layers: int, n_heads: int) -> dict[str, np.ndarray]:
    """Where each row of a table is that goes head by head, layer after layer."""
    return {"layer": np.repeat(np.arange(n_layers), n_heads), "head": np.tile(np.arange(n_heads), n_layers)}
