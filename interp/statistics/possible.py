"""Numbers that no finding can have: a p of -0.1, an inverted band, a value outside its interval."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from interp.findings import Findings, Scalar
from interp.table import Table

_AT_MOST_1 = ("r2", "correlation", "rho")
"""Ends of the names of numbers that are at most 1 and, but for R², at least -1. (A cosine may be a difference.)"""

_FLOAT32 = 1e-5

_ROUNDING = 1e-9
"""Relative difference up to which numbers count as equal."""


def impossible(findings: Findings) -> list[str]:
    """Every impossible scalar and column, each with the reason."""
    scalars = [f"{name}: {what}" for name, s in findings.scalars.items() for what in _in_scalar(name, s)]
    return scalars + [f"{name}.{what}" for name, table in findings.tables.items() for what in _in_table(table)]


def _in_scalar(name: str, scalar: Scalar) -> Iterator[str]:
    if not _in_range(name, scalar.value):
        yield f"{scalar.value} is out of its range"
    if scalar.interval and not _ordered(scalar.interval[0], scalar.value, scalar.interval[1]):
        yield f"{scalar.value} lies outside its interval {scalar.interval}"
    null = scalar.null
    if null and not _ordered(null.band[0], null.band[0], null.band[1]):  # a skewed null may have its mean outside
        yield f"the band of the null ends below its beginning: {null.band}"
    if scalar.p is not None and not 0 < scalar.p <= 1:
        yield f"p = {scalar.p} is no probability above 0"
    elif scalar.p is not None and null and null.n_draws and not _ordered(1 / (1 + null.n_draws), scalar.p, 1.0):
        yield f"p = {scalar.p} is below what {null.n_draws} draws can give"


def _in_table(table: Table) -> Iterator[str]:
    for name, column in table.columns.items():
        is_p = name == "p" or name.endswith("_p")
        if is_p and table.units[name] != "probability":
            yield f"{name}: the unit of a p is probability, not {table.units[name]}"
        if (is_p or table.units[name] == "probability") and not _ordered(0.0, column, 1.0):
            yield f"{name}: {np.nanmin(column)} to {np.nanmax(column)} are no probabilities"
        if not _in_range(name, column):
            yield f"{name}: {np.nanmin(column)} to {np.nanmax(column)} are out of its range"
        if f"{name}_low" not in table:
            continue
        low, high = table[f"{name}_low"], table[f"{name}_high"]
        if not _ordered(low, low if name.endswith("null") else column, high):
            yield f"{name}: a value lies outside {name}_low to {name}_high"


def _in_range(name: str, value: Any) -> bool:
    return not name.endswith(_AT_MOST_1) or _ordered(
        -np.inf if name.endswith("r2") else -1.0 - _FLOAT32, value, 1.0 + _FLOAT32
    )


def _ordered(low: Any, value: Any, high: Any) -> bool:
    """Whether `low <= value <= high` everywhere but for rounding; NaN counts as in order."""
    pairs = ((low, value), (value, high), (low, high))
    return not any(np.any(np.greater(a, b) & ~np.isclose(a, b, rtol=_ROUNDING, atol=_ROUNDING)) for a, b in pairs)
