"""Tables of the page: the first rows as HTML, the whole gzipped, which the page sorts and saves as CSV."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from interp.formatting import cell, printable
from interp.table import LABEL, Table

N_ROWS = 30
"""Rows that the page shows of a table."""

EMBEDDED_BYTES = 700_000
"""The most bytes of all embedded tables; the largest tables are then left to their Parquet files."""

_LONG = 24  # characters of a text that wants a wide column


@dataclass(frozen=True)
class Column:
    """A column's name, its unit if informative, and the kind of its cells."""

    name: str
    unit: str
    kind: Literal["num", "long", "word"]


@dataclass(frozen=True)
class Listing:
    """A table on the page. `data` has all columns as JSON, gzipped, in base 64; empty if the page has no room."""

    probe: str
    name: str
    caption: str
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]
    n_rows: int
    data: str
    file: str


def listings(tables: Mapping[str, Mapping[str, Table]]) -> dict[str, dict[str, Listing]]:
    """Every table of every probe; the smallest are embedded until the page has no more room."""
    whole = {(p, t): _packed(table) for p, named in tables.items() for t, table in named.items()}
    room, fits = EMBEDDED_BYTES, set()
    for key in sorted(whole, key=lambda k: (len(whole[k]), k)):
        room -= len(whole[key])
        if room < 0:
            break
        fits.add(key)
    return {
        probe: {name: _listing(probe, name, table, whole[probe, name] if (probe, name) in fits else "")
                for name, table in named.items()}
        for probe, named in tables.items()
    }  # fmt: skip


def _listing(probe: str, name: str, table: Table, data: str) -> Listing:
    shown = min(table.n_rows, N_ROWS)
    columns = [_values(column[:shown]) for column in table.columns.values()]
    return Listing(
        probe=probe,
        name=name,
        caption=table.caption,
        columns=tuple(_column(n, c, table.units[n]) for n, c in table.columns.items()),
        cells=tuple(tuple(cell(v) for v in row) for row in zip(*columns, strict=True)),
        n_rows=table.n_rows,
        data=data,
        file=f"tables/{probe}.{name}.parquet",
    )


def _column(name: str, column: np.ndarray, unit: str) -> Column:
    is_long = any(isinstance(v, str) and len(v) > _LONG for v in column[:N_ROWS].tolist())
    kind = "num" if column.dtype.kind in "iuf" else "long" if is_long else "word"
    return Column(name, "" if unit in (LABEL, "1", "", name) else unit, kind)


def _packed(table: Table) -> str:
    content = {"names": list(table.columns), "values": [_values(column) for column in table.columns.values()]}
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _values(column: np.ndarray) -> Sequence[Any]:
    return [_value(v) for v in column.tolist()]


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}") if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else printable(str(value))
