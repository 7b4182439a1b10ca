"""How numbers and groups are called in the figures of a comparison."""

import html

from interp.formatting import short, with_unit
from interp.records.labels import label
from interp.table import Table

_NAME = 34  # characters of a name along an axis


def in_words(table: Table, i: int) -> str:
    """A row of the table of differences in one line: the difference, or the value where it is compared with nothing."""
    name, group, unit = (str(table[column][i]) for column in ("name", "group", "unit"))
    if not table["against"][i]:
        return f"{name}: {group}: {_with_bounds(table, i, 'value', ('low', 'high'), unit)}"
    bounds = ("difference_low", "difference_high")
    difference = _with_bounds(table, i, "difference", bounds, unit)
    return f"{name}: {group} compared with {table['against'][i]}: {difference}, {table['verdict'][i] or 'no interval'}"


def _with_bounds(table: Table, i: int, column: str, bounds: tuple[str, str], unit: str) -> str:
    low, high = (short(float(table[bound][i])) for bound in bounds)
    return f"{with_unit(short(float(table[column][i])), unit)} ({low} to {high})"


def title_of(name: str, unit: str) -> str:
    words = name.removesuffix(f"_{unit}").replace("_", " ")
    return html.escape(words if unit in ("1", "", "label") else f"{words} ({unit})")


def label_of(table: Table, i: int) -> str:
    """What the number of a row is called; records of earlier versions hold no meaning."""
    meaning = str(table["meaning"][i]) if "meaning" in table else ""
    return label(str(table["probe"][i]), str(table["name"][i]), meaning)


def row_label(table: Table, i: int) -> str:
    """The same with its unit, as text of a figure."""
    unit = str(table["unit"][i])
    return html.escape(
        label_of(table, i) + ("" if unit in ("1", "", "label", "fraction") else f" ({unit})"), quote=False
    )


def cut(name: str) -> str:
    """A name that fits beside a figure: its end is what tells names of one beginning apart."""
    return name if len(name) <= _NAME else f"…{name[-(_NAME - 1) :]}"
