"""How numbers and groups are called in the figures of a comparison."""

import html
from collections.abc import Mapping
from typing import Any

from interp.formatting import short, with_unit
from interp.records.labels import label_with_unit

_NAME = 34  # characters of a name along an axis


def in_words(row: Mapping[str, Any]) -> str:
    """A row of the table of differences in one line: the difference, or the value where it is compared with nothing."""
    columns = ("difference", "difference_low", "difference_high") if row["against"] else ("value", "low", "high")
    value, low, high = (short(row[column]) for column in columns)
    than = f" compared with {row['against']}" if row["against"] else ""
    verdict = f", {row['verdict'] or 'not tested'}" if row["against"] else ""
    return f"{row['name']}: {row['group']}{than}: {with_unit(value, row['unit'])} ({low} to {high}){verdict}"


def title_of(name: str, unit: str) -> str:
    words = name.removesuffix(f"_{unit}").replace("_", " ")
    return html.escape(words if unit in ("1", "", "label") else f"{words} ({unit})")


def row_label(row: Mapping[str, Any]) -> str:
    """What the number of a row is called, with its unit, as text of a figure; old records hold no meaning."""
    return html.escape(label_with_unit(row["probe"], row["name"], row.get("meaning") or "", row["unit"]), quote=False)


def cut(name: str) -> str:
    """A name that fits beside a figure: its end is what tells names of one beginning apart."""
    return name if len(name) <= _NAME else f"…{name[-(_NAME - 1) :]}"
