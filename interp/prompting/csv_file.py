"""A CSV file as rows: its separator is found by its header, each row is told by the line that it begins on."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interp.prompting.chat import MESSAGES
from interp.prompting.csv_columns import typed
from interp.prompting.rows import PromptRow, broken_line

_SEPARATORS = ",;\t|"


def read_csv(path: Path, text: str, text_column: str) -> list[PromptRow]:
    """The rows below the header; texts stay as they are, every other column is numbers or names (`typed`)."""
    with _any_length(text):
        cells, lines = _records(path, text, _separator(text, text_column))
    if not cells:
        return []
    header, *cells = cells
    first, *lines = lines
    if len(set(header)) < len(header):
        found = f"a column stands in the header twice: {header}"
        raise broken_line(path, first, found, "Give every column its own name.")
    for row, line in zip(cells, lines, strict=True):
        if len(row) != len(header):
            found = f"it has {len(row)} cells, the header has {len(header)}"
            raise broken_line(path, line, found, "Put texts that hold a comma or a line break in double quotes.")
    columns = [
        column if name in (text_column, MESSAGES) else typed(path, name, column, lines)
        for name, column in zip(header, zip(*cells, strict=True), strict=bool(cells))
    ]
    return [
        PromptRow(f"line {line}", dict(zip(header, row, strict=True)))
        for row, line in zip(zip(*columns, strict=True), lines, strict=True)
    ]


def _separator(text: str, text_column: str) -> str:
    """The separator with which the header has the column of texts, or as many columns as it can; or what Excel says."""
    first = next(iter(text.splitlines()), "")
    if _named(first):
        return first[-1]
    headers = {separator: next(csv.reader([first], delimiter=separator), []) for separator in _SEPARATORS}
    return max(headers, key=lambda separator: (text_column in headers[separator], len(headers[separator])))


def _named(line: str) -> bool:
    """Whether a line names the separator, as Excel writes it above the header: `sep=;`."""
    return re.fullmatch('sep=[^"\n]', line) is not None


def _records(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """The cells of each row, the header first, without empty rows at the end, and the line that each begins on."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    cells: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        for row in reader:
            cells.append(row)
            lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        fix = "Close quotes, and double those inside."
        raise broken_line(path, start, f"it is not CSV: {error}", fix) from error
    while cells and not cells[-1]:
        cells.pop()
    first = int(bool(cells) and _named(separator.join(cells[0])))
    return cells[first:], lines[first : len(cells)]


@contextmanager
def _any_length(text: str) -> Iterator[None]:
    """A cell may be as long as its file inside."""
    longest = csv.field_size_limit(max(len(text), 1))
    try:
        yield
    finally:
        csv.field_size_limit(longest)
