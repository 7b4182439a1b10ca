"""Numbers as text for pages, terminals and notebooks: three digits, a dash for NaN."""

import html
import math
import re
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import PureWindowsPath
from typing import Any

DASH = "–"
MINUS = "−"
MILLIONTHS = "millionths of a bit"
BY_COLUMN = "the column "
"""How `Clusters.by` begins where a column names the clusters."""

_ROUNDING = 1e-12
_LEAST_P = 1e-6
_TINY_BITS = 1e-4


def short(x: float, digits: int = 3) -> str:
    """A number to so many significant digits, without trailing zeros after the point; a dash for NaN.

    From 0.0001 to a million it is written out, beyond with a power of ten. The script of the page writes the cells of
    a sorted table by the same rule.
    """
    if math.isnan(x):
        return DASH
    if math.isinf(x):
        return "∞" if x > 0 else f"{MINUS}∞"
    size = abs(x)
    if size == 0:
        return "0"
    if not 1e-4 <= size < 1e6:
        mantissa, power = f"{size:.{digits - 1}e}".split("e")
        text = f"{_trimmed(mantissa)}e{int(power)}".replace("e-", f"e{MINUS}")
    else:
        text = _trimmed(f"{size:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}")
    return text if x > 0 else MINUS + text


def is_tiny(bits: float) -> bool:
    """Whether an effect, and all it is compared with, is shown in `MILLIONTHS`."""
    return 0 < abs(bits) < _TINY_BITS


def near_zero_as_zero(x: float) -> float:
    """0 for a rounding error, as of the mean of a null that is symmetric about 0."""
    return 0.0 if abs(x) <= _ROUNDING else x


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(value: Any) -> str:
    """A value of a table: whole numbers whole, others to three digits, truth as yes and no, the rest as text."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value).replace("-", MINUS)
    return short(value) if isinstance(value, float) else str(value)


def p_value(p: float, is_least: bool = False) -> str:
    """`0.002`; `≤ 0.005` at the least that the draws can give, `< 1e−6` at the least p that is ever given."""
    return f"< {short(_LEAST_P)}" if p <= _LEAST_P else f"{'≤ ' if is_least else ''}{short(p, 2)}"


def p_equals(p: float, is_least: bool = False) -> str:
    """`p = 0.002`, `p ≤ 0.005`, `p < 1e−6`."""
    return f"p {p_value(p, is_least)}" if p <= _LEAST_P or is_least else f"p = {p_value(p)}"


def with_unit(text: str, unit: str) -> str:
    """A number with its unit; pure numbers and fractions have none."""
    return text if unit in ("", "1", "fraction", "label") else f"{text} {unit}"


def size(n_bytes: int | float) -> str:
    """A number of bytes in a unit that fits: `46.3 kB`."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while n_bytes >= 999.5 and units[1:]:
        n_bytes, _ = n_bytes / 1000, units.pop()
    return f"{n_bytes:.3g} {units[-1]}"


def plain(text: str) -> str:
    """A text of this module in ASCII, for terminals and commands."""
    return "n/a" if text == DASH else text.replace(MINUS, "-").replace("∞", "inf").replace("≤", "<=")


_UNPRINTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters that affect a terminal or the direction of text; newlines and tabs are kept."""


def printable(text: str) -> str:
    """A foreign text with its control characters escaped (`\\x1b`)."""
    return _UNPRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_LONGEST = 200
_VALUES = re.compile(
    rf"""'[^'\n]{{{_LONGEST},}}'|"[^"\n]{{{_LONGEST},}}"|\[.{{{_LONGEST},}}\]|\{{.{{{_LONGEST},}}\}}"""
    rf"""|\([^()\n]{{{_LONGEST},}}\)|\S{{{_LONGEST + 1},}}"""
)
"""Values in a message that are longer than it quotes: in quotes, in brackets, or without a space."""


def quoting(message: str) -> str:
    """A message that is `printable`, with at most 200 characters of every value."""
    return _VALUES.sub(lambda found: f"{found[0][:_LONGEST]} ...", printable(message))


def last_part(path: str) -> str:
    """The last part of a path of any operating system."""
    return PureWindowsPath(path).name or path


def short_name(model: str) -> str:
    """A model's name; of a path only its end. A hub id has at most one slash and stays."""
    is_path = PureWindowsPath(model).anchor or model.startswith((".", "~")) or model.count("/") > 1 or "\\" in model
    return last_part(model) if is_path else model


def plural(noun: str) -> str:
    """`prompts`, `categories`, `hypotheses`."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun.removesuffix('is')}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def counted(n: int, noun: str) -> str:
    """`1 prompt`, `1,200 sequences`."""
    return f"{n:,} {noun if n == 1 else plural(noun)}"


def of_clusters(n: int, unit: str, n_clusters: int, by: str) -> str:
    """`288 prompts in 48 clusters, by shared wording`; `1,750 prompts of 250 problems`, by the column `problem`."""
    those, kind = counted(n, unit), _kind(by)
    if n_clusters == n:
        return those
    clusters = counted(n_clusters, kind or "cluster")
    return f"{those} of {clusters}" if kind else f"{those} in {clusters}, by {by}"


def sample_size(n: int, unit: str, n_clusters: int, n_effective: float, by: str) -> str:
    """The sample size in words, where there are fewer clusters than prompts; unequal clusters weigh less."""
    each, weight, kind = n / n_clusters, round(n_effective), _kind(by)
    sizes = f", {'' if each.is_integer() else 'about '}{round(each)} each" if kind and weight == n_clusters else ""
    weigh = f", which weigh as much as {weight:,} of one size" if weight < n_clusters else ""
    return (
        f"{of_clusters(n, unit, n_clusters, by)}{sizes}{weigh}; those of one {kind or 'cluster'} are alike, so the "
        f"sample size is {n_clusters:,}: {plural(kind or 'cluster')} are resampled, permuted and split as a whole."
    )


def _kind(by: str) -> str:
    """The name of one cluster, where a column gives it in one word."""
    column = by.removeprefix(BY_COLUMN)
    return column if column != by and column.isalpha() else ""


def text_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], further: str) -> str:
    """A titled table as `print` shows it, in columns of equal width."""
    lines = [[printable(cell) for cell in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join((title, *table, *([further] if further else [])))


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def brief(of: Any) -> str:
    """A dataclass as one line: fields that differ from their defaults, arrays by shape, long values cut."""
    shown = []
    for field in fields(of):
        value = getattr(of, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        shape = getattr(value, "shape", None)
        if shape is not None:
            shown.append(f"{field.name}=array{list(shape)}")
        elif field.repr and (default is MISSING or value != default):
            shown.append(f"{field.name}={_SHOWN.repr(value)}")
    return printable(f"{type(of).__name__}({', '.join(shown)})")


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], further: str) -> str:
    """A titled table as HTML for a notebook, with every text escaped."""
    cells = "".join(f"<tr>{''.join(f'<td>{_as_html(x)}</td>' for x in row)}</tr>" for row in rows)
    heads = "".join(f"<th>{_as_html(x)}</th>" for x in head)
    return (
        f"<div><p><b>{_as_html(title)}</b></p><table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>"
        f"<p>{_as_html(further)}</p></div>"
    )


def _as_html(text: str) -> str:
    return html.escape(printable(text))
