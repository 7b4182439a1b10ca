"""A part of what a probe found, where it could be measured; else the note that says why not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from interp.findings import Scalar
from interp.table import Table


@dataclass(frozen=True)
class Part:
    """Scalars, tables and notes to be joined into the findings."""

    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
