"""A table whose every column has a unit."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import Answering, UsageError, named
from interp.formatting import printable

if TYPE_CHECKING:
    import pandas

_N_SHOWN = 10  # rows that a notebook shows

LABEL = "label"
"""The unit of columns that name things."""

ROW_UNITS: Mapping[str, str] = {
    "prompt": "index", "cluster": "index", "position": "tokens", "length": "tokens", "token": "index",
    "token_before": "index", "next_entropy_bits": "bits", "drawn": LABEL, "stratum": LABEL,
}  # fmt: skip
"""Units of the columns that a capture adds to those of the prompts."""

ENDINGS = ("_low", "_high", "_null", "_null_low", "_null_high", "_p")
"""Endings of the columns beside a number: its interval, its null with the band, and its p."""


def number_columns(
    name: str, value: Any, interval: Iterable[Any] | None = None, null: Iterable[Any] | None = None, p: Any = None
) -> dict[str, Any]:
    """A number (or a column) by its name, and its interval, null and p, if given, by that name and `ENDINGS`.

    `interval` has two bounds; `null` its value, then the two bounds of its band.
    """
    found = {name: value}
    if interval is not None:
        found |= zip((f"{name}_low", f"{name}_high"), interval, strict=True)
    if null is not None:
        found |= zip((f"{name}_null", f"{name}_null_low", f"{name}_null_high"), null, strict=True)
    return found if p is None else found | {f"{name}_p": p}


@dataclass(frozen=True, eq=False, repr=False)
class Table(Answering):
    """Named columns of equal length with their units (`bits`, `1` for pure numbers, `label` for names ...).

    Without a unit of their own, `x_low`, `x_high`, `x_null`, `x_null_low` and `x_null_high` take that of `x`, and `x_p`
    is a `probability`. Raises `ValueError` if another column has no unit, or lengths differ.

    >>> units = {"layer": "label", "entropy": "bits"}
    >>> table = interp.Table({"layer": np.arange(2), "entropy": np.array([2.0, 1.5])}, units)
    >>> table.units["entropy"]
    'bits'
    """

    columns: Mapping[str, np.ndarray]
    units: Mapping[str, str]
    caption: str = ""
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of different lengths: {lengths}")
        units = {name: _unit_of(name, self.units) for name in self.columns}
        if None in units.values() or not set(self.units) <= set(units):
            raise ValueError(f"columns {sorted(self.columns)} but units for {sorted(self.units)}")
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "n_rows", next(iter(lengths.values()), 0))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, object]], units: Mapping[str, str], caption: str = "") -> "Table":
        """Build from one mapping per row; the keys of `units` name and order the columns.

        After a column `x` follow `x_low`, `x_high` and so on, if the first row has them.
        """
        rows = list(rows)
        beside = {*rows[0]} - {*units} if rows else set()
        names = [name + end for name in units for end in ("", *ENDINGS) if end == "" or name + end in beside]
        return cls({name: np.array([row[name] for row in rows]) for name in names}, units, caption)

    @classmethod
    def stacked(cls, parts: Sequence[Mapping[str, Any]], units: Mapping[str, str], caption: str = "") -> "Table":
        """Build from parts with the same columns, one below the other; a single value fills all rows of its part.

        `units` may name more columns than there are.
        """
        even = [np.broadcast_arrays(*map(np.asarray, part.values())) for part in parts]
        columns = {name: np.concatenate([part[i] for part in even]) for i, name in enumerate(parts[0])}
        return cls(columns, {name: unit for name, unit in units.items() if name in columns}, caption)

    _habits = "`table.to_frame()` is a pandas frame."

    def __getitem__(self, name: str) -> np.ndarray:
        return named("column", name, self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def keys(self) -> Iterable[str]:
        """The names of the columns, so `dict(table)` works."""
        return self.columns.keys()

    def __len__(self) -> int:
        return self.n_rows

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:  # a frame made of it would hold the names alone
        raise UsageError(asked="a Table as an array or a frame", found="it holds columns by name", fix=self._habits)

    def where(self, keep: np.ndarray) -> "Table":
        """The rows that a boolean mask or an index array picks."""
        return Table({name: column[keep] for name, column in self.columns.items()}, self.units, self.caption)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row as a dictionary of plain Python values."""
        for row in zip(*(column.tolist() for column in self.columns.values()), strict=True):
            yield dict(zip(self.columns, row, strict=True))

    def groups(self, column: str) -> Iterator[tuple[Any, "Table"]]:
        """Every value of a column with the table of its rows, in order of appearance."""
        for value in dict.fromkeys(self[column].tolist()):
            yield value, self.where(self[column] == value)

    def with_column(self, name: str, column: np.ndarray, unit: str) -> "Table":
        """A copy with one column more (or replaced)."""
        return Table({**self.columns, name: column}, {**self.units, name: unit}, self.caption)

    def __repr__(self) -> str:
        caption = f"{self.caption}\n" if self.caption else ""
        shown = self._shown().to_string(max_rows=4, max_cols=6, max_colwidth=40)
        return printable(f"{caption}{shown}\n[{self.n_rows:,} rows, {len(self.columns)} columns]")

    def _repr_html_(self) -> str:
        return printable(self._shown().to_html(max_rows=_N_SHOWN, escape=True, border=0))

    def _shown(self) -> "pandas.DataFrame":
        names = {name: name if unit in (LABEL, "1") else f"{name} / {unit}" for name, unit in self.units.items()}
        return self.to_frame().rename(columns=names)

    def to_frame(self) -> "pandas.DataFrame":
        """The columns as a pandas frame; units are in `frame.attrs["units"]`."""
        import pandas

        frame = pandas.DataFrame(dict(self.columns))
        frame.attrs["units"] = dict(self.units)
        return frame


def _unit_of(column: str, units: Mapping[str, str]) -> str | None:
    """The unit of a column, by default that of its number; None if neither is given."""
    if column in units:
        return units[column]
    number = next((n for n in units if column in {n + end for end in ENDINGS}), None)
    return None if number is None else "probability" if column == f"{number}_p" else units[number]
