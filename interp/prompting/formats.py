"""The formats of prompt files: bytes of .jsonl, .csv, .tsv, .parquet and .txt files as rows, each with its place."""

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interp.errors import PromptError
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.rows import MESSAGES, PromptRow, broken_line
from interp.system.foreign_files import read_rows, readable

_SEPARATORS = ",;\t|"

_NAMED = re.compile('sep=[^"\n]')
"""A line above the header that names the separator, as Excel writes it: `sep=;`."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_CODE = re.compile(r"0[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MARKED = re.compile(r"[-+−]?[$€£]? ?([0-9]{1,3}([,.'’_\s][0-9]{3})+([.,][0-9]+)?|[0-9]*[,.]?[0-9]+) ?[%$€£]?")
_GAPS = frozenset({"", "-", "?", "#n/a", "n/a", "na", "nan", "-nan", "null", "none", "inf", "+inf", "-inf", "infinity"})
_MOST_DIGITS = 400
"""No float with more digits is finite, and Python reads no integer that is much longer."""


def _read_csv(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    """The rows below the header; texts stay as they are, every other column is numbers or names (`_typed`)."""
    text = _decoded(path, content)
    with _cells_of_any_length(text):
        records = _records(path, text, _separator(text, text_column))
    if not records:
        return []
    (first, header), *records = records
    if len(set(header)) < len(header):
        found = f"a column of the header is repeated: {header}"
        raise broken_line(path, first, found, "Give every column its own name.")
    for line, row in records:
        if len(row) != len(header):
            found = f"it has {len(row)} cells, the header has {len(header)}"
            raise broken_line(path, line, found, "Put texts that hold a comma or a line break in double quotes.")
    lines = [line for line, _ in records]
    columns = [
        column if name in (text_column, MESSAGES) else _typed(path, name, column, lines)
        for name, column in zip(header, zip(*(row for _, row in records), strict=True), strict=bool(records))
    ]
    return [
        PromptRow(f"line {line}", dict(zip(header, row, strict=True)))
        for row, line in zip(zip(*columns, strict=True), lines, strict=True)
    ]


@contextmanager
def _cells_of_any_length(text: str) -> Iterator[None]:
    limit = csv.field_size_limit(max(len(text), 1))
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _separator(text: str, text_column: str) -> str:
    """The separator that Excel names, or that gives the header the column of texts, or the most columns."""
    first = next(iter(text.splitlines()), "")
    if _NAMED.fullmatch(first):
        return first[-1]
    headers = {separator: next(csv.reader([first], delimiter=separator), []) for separator in _SEPARATORS}
    return max(headers, key=lambda separator: (text_column in headers[separator], len(headers[separator])))


def _records(path: Path, text: str, separator: str) -> list[tuple[int, list[str]]]:
    """The first line and the cells of every row, the header first, without empty rows at the end."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records: list[tuple[int, list[str]]] = []
    start = 1
    try:
        for row in reader:
            records.append((start, row))
            start = reader.line_num + 1
    except csv.Error as error:
        fix = "Close quotes, and double those inside."
        raise broken_line(path, start, f"it is not CSV: {error}", fix) from error
    while records and not records[-1][1]:
        records.pop()
    is_named = bool(records) and _NAMED.fullmatch(separator.join(records[0][1])) is not None
    return records[is_named:]


def _typed(
    path: Path, name: str, cells: Sequence[str], lines: Sequence[int]
) -> Sequence[str] | list[int] | list[float]:
    """The cells as numbers if more of them are numbers than words, else as names; codes such as `007` are names.

    In a column of numbers `PromptError` names the line of the first gap, word or marked number (`1,250`, `12 %`).
    White space around a number is ignored.
    """
    plain = [cell.strip() for cell in cells]
    kinds = [_kind(cell) for cell in plain]
    n = Counter(kinds)
    if n["code"] or n["number"] + n["marked"] <= n["word"]:
        return cells
    for line, cell, kind in zip(lines, cells, kinds, strict=True):
        if kind != "number":
            found = f"the column {name!r} holds {cell!r:.60}, and most of its cells are numbers"
            fix = "Write numbers as 1250 or -0.25 and leave no gap, or leave the column out. JSON Lines holds any name."
            raise broken_line(path, line, found, fix)
    is_whole = all(_INTEGER.fullmatch(cell) and len(cell) < _MOST_DIGITS for cell in plain)
    return [int(cell) for cell in plain] if is_whole else [float(cell) for cell in plain]


def _kind(cell: str) -> str:
    if _NUMBER.fullmatch(cell):
        return "code" if _CODE.fullmatch(cell) else "number"
    return "marked" if _MARKED.fullmatch(cell) else "gap" if cell.lower() in _GAPS else "word"


_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def _decoded(path: Path, content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 if it begins with a byte order mark."""
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    try:
        return content.removeprefix(mark).decode(_MARKS.get(mark, "utf-8"))
    except UnicodeDecodeError as error:
        offset = len(mark) + error.start
        line = content.count(b"\n", 0, offset) + 1
        found = f"byte {offset} of the file (0x{content[offset]:02x}) is not {_MARKS.get(mark, 'utf-8').upper()}"
        raise broken_line(path, line, found, "Save the file as UTF-8.") from error


def _lines(path: Path, content: bytes) -> list[str]:
    """Lines as editors count them, without blank ones at the end; raises `PromptError` for a blank one in between."""
    lines = [line.removesuffix("\r") for line in _decoded(path, content).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    for i, line in enumerate(lines):
        if not line.strip():
            raise broken_line(path, i + 1, "the line is empty", "Leave the line out, or write a prompt on it.")
    return lines


def _read_txt(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    lines = _lines(path, content)
    for i, line in enumerate(lines):
        if "\r" in line:
            raise broken_line(path, i + 1, "there is a carriage return inside the line", "End lines with a line feed.")
    return [PromptRow(f"line {i + 1}", {text_column: line}) for i, line in enumerate(lines)]


def _read_jsonl(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    rows = []
    for i, line in enumerate(_lines(path, content)):
        try:
            values = json.loads(line, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise broken_line(path, i + 1, f"it is not JSON: {why}", "Write one JSON object a line.") from error
        if not isinstance(values, dict):
            kind = type(values).__name__
            raise broken_line(path, i + 1, f"it is a {kind}, not an object", f'Write {{"{text_column}": "..."}} on it.')
        rows.append(PromptRow(f"line {i + 1}", values))
    return rows


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is repeated")
    return values


def _read_parquet(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    fix = "Write it again, for instance with `frame.to_parquet(path, index=False)`."
    with readable(f"the prompts of {path}", fix, found="it cannot be read as Parquet", error=PromptError):
        return rows_of_table(read_rows(content), str(path))


READERS: dict[str, Callable[[Path, bytes, str], list[PromptRow]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
"""By ending, the function of path (for messages), content and text column that returns the rows."""


def piped_rows(content: bytes, text_column: str) -> list[PromptRow]:
    """The rows of piped input: JSON Lines if a line is an object, CSV if the first line is its header, else texts."""
    pipe = Path("standard input")
    lines = [line for line in _decoded(pipe, content).split("\n") if line.strip()]
    if any(re.fullmatch(r'\s*\{\s*".*\}\s*', line) for line in lines):
        return _read_jsonl(pipe, content, text_column)
    header, text = lines[1:] if lines and _NAMED.fullmatch(lines[0].strip()) else lines, "\n".join(lines)
    with _cells_of_any_length(text):
        names = next(csv.reader(header, delimiter=_separator(text, text_column)), [])
    if text_column in names and len(names) > 1:
        return _read_csv(pipe, content, text_column)
    return _read_txt(pipe, text.encode(), text_column)
