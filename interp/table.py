"""A table whose every column has a unit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas

_N_SHOWN = 10  # rows that a notebook shows

LABEL = "label"
"""The unit of columns that name things."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length with their units (`bits`, `1` for pure numbers, `label` for names ...).

    Raises `ValueError` where a column has no unit or another length: that is a fault of the code that built it.
    """

    columns: Mapping[str, np.ndarray]
    units: Mapping[str, str]
    caption: str = ""
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of different lengths: {lengths}")
        if set(self.columns) != set(self.units):
            raise ValueError(f"columns {sorted(self.columns)} but units for {sorted(self.units)}")
        object.__setattr__(self, "n_rows", next(iter(lengths.values()), 0))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, object]], units: Mapping[str, str], caption: str = "") -> "Table":
        """Build from one mapping a row; the keys of `units` name and order the columns."""
        rows = list(rows)
        columns = {name: np.array([row[name] for row in rows]) for name in units}
        return cls(columns, dict(units), caption)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def where(self, keep: np.ndarray) -> "Table":
        """The rows that a boolean mask or an index array picks."""
        return Table({name: column[keep] for name, column in self.columns.items()}, self.units, self.caption)

    def with_column(self, name: str, column: np.ndarray, unit: str) -> "Table":
        """A copy with one column more (or replaced)."""
        return Table({**self.columns, name: column}, {**self.units, name: unit}, self.caption)

    def _repr_html_(self) -> str:
        names = {name: name if unit in (LABEL, "1") else f"{name} / {unit}" for name, unit in self.units.items()}
        return self.to_frame().rename(columns=names).to_html(max_rows=_N_SHOWN, escape=True, border=0)

    def to_frame(self) -> "pandas.DataFrame":
        """The columns as a pandas frame; units are in `frame.attrs["units"]`."""
        import pandas

        frame = pandas.DataFrame(dict(self.columns))
        frame.attrs["units"] = dict(self.units)
        return frame
