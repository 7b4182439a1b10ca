"""Figures read back: whatever a figure draws stands in a row of a table of its findings."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

Columns = dict[str, list[Any]]
Place = tuple[int, str, str]
"""A table by its number, and the columns that are drawn across and up."""

CUT, PLACE = ", cut", "place"


def not_in_tables(findings: Findings, figures: Iterable[Figure]) -> list[str]:
    """The traces of figures that are no rows of a table: points, bars of intervals, bands, squares.

    Lines to compare with, between two points or at one height, are left out. Intervals of magnitudes may be cut to 0
    and 1, and steps of a training may stand on a logarithmic axis.
    """
    tables = [_columns(table) for table in findings.tables.values()]
    found = []
    for figure in figures:
        drawn = [*figure.plot.data, *(trace for frame in figure.plot.frames for trace in frame.data)]
        found += [f"{figure.name}: {i} {trace.name}" for i, trace in enumerate(drawn) if not _is_read(trace, tables)]
    return found


def _columns(table: Table) -> Columns:
    columns = {name: _written(column) for name, column in table.columns.items()}
    bounds = {name: column for name, column in table.columns.items() if name.endswith(("_low", "_high"))}
    along = {"along": _written(np.log2(1 + table["step"].astype(float)))} if "step" in table else {}
    return columns | {name + CUT: _written(np.clip(column, 0, 1)) for name, column in bounds.items()} | along


def _is_read(trace: Any, tables: list[Columns]) -> bool:
    if trace.type in ("heatmap", "histogram"):
        drawn = set(_written(trace.z if trace.type == "heatmap" else trace.x)) - {None}
        return any(drawn <= set(column) for columns in tables for column in columns.values())
    x, y = _written(trace.x), _written(trace.y)
    if trace.type == "bar" and trace.base is not None:
        high = _written(np.asarray(trace.base) + np.asarray(trace.y))
        return bool(_ends(tables, x, high, 2, "high") & _ends(tables, x, _written(trace.base), 2, "low"))
    if trace.type == "scatter" and trace.fill == "toself":
        half = len(x) // 2
        return bool(_ends(tables, x[:half], y[:half], 2, "high") & _ends(tables, x[half:], y[half:], 2, "low"))
    if trace.type == "scatter" and trace.mode == "lines" and (len(x) <= 2 or len({*y} - {None}) <= 1):
        return True
    places = set(_found(tables, x, y))
    for axis, bars in ((1, trace.error_x), (2, trace.error_y)):
        for end, lengths in (("_high", bars.array), ("_low", None if bars.arrayminus is None else -bars.arrayminus)):
            if lengths is not None:
                ends = _written(np.asarray(trace.x if axis == 1 else trace.y) + lengths)
                places &= _ends(tables, ends if axis == 1 else x, ends if axis == 2 else y, axis, end)
    return bool(places)


def _ends(tables: list[Columns], x: list[Any], y: list[Any], axis: int, end: str) -> set[Place]:
    """Where bounds are drawn along an axis: the numbers that they are the bounds of."""
    found = set()
    for i, *columns in _found(tables, x, y):
        bound = columns[axis - 1].removesuffix(CUT)
        if bound.endswith(end):
            columns[axis - 1] = bound.removesuffix(end)
            found.add((i, *columns))
    return found


def _found(tables: list[Columns], x: list[Any], y: list[Any]) -> Iterator[Place]:
    """Every pair of columns whose rows hold all points that are drawn; a point without one of its numbers is not.

    Places along an axis, counted or named, need no column.
    """
    drawn = {(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None}
    for i, columns in enumerate(tables):
        for name, column in columns.items():
            if _are_places(x) and {b for _, b in drawn} <= set(column):
                yield i, PLACE, name
            if _are_places(y) and {a for a, _ in drawn} <= set(column):
                yield i, name, PLACE
        for across in columns:
            if {a for a, _ in drawn} <= set(columns[across]):
                for up in columns:
                    if across != up and drawn <= set(zip(columns[across], columns[up], strict=True)):
                        yield i, across, up


def _are_places(values: list[Any]) -> bool:
    return values == list(range(len(values))) or all(isinstance(value, str) for value in values)


def _written(values: Any) -> list[Any]:
    """Numbers to nine digits, None where there is none, and texts as they are."""
    plain = [] if values is None else np.asarray(values).ravel().tolist()
    return [x if isinstance(x, str) else _rounded(x) for x in plain]


def _rounded(x: float | None) -> float | None:
    return None if x is None or not math.isfinite(x) else float(f"{x:.9g}")
