"""The formats of prompt files: the bytes of a .jsonl, .csv, .parquet or .txt file as rows, each with its place."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from interp.errors import PromptError
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.rows import PromptRow

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.removeprefix(_BYTE_ORDER_MARK).decode()
    except UnicodeDecodeError as error:
        offset = len(content) - len(error.object) + error.start
        line = content.count(b"\n", 0, offset) + 1
        found = f"byte {offset} of the file (0x{content[offset]:02x}) is not UTF-8"
        raise _broken(path, line, found, "Save the file as UTF-8.") from error


def _lines(path: Path, content: bytes) -> list[str]:
    """Lines as editors count them, without the blank ones at the end; a blank one between others is refused."""
    lines = [line.removesuffix("\r") for line in _decoded(path, content).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    for i, line in enumerate(lines):
        if not line.strip():
            raise _broken(path, i + 1, "the line is empty", "Leave the line out, or write a prompt on it.")
    return lines


def _broken(path: Path, line: int, found: str, fix: str) -> PromptError:
    return PromptError(asked=f"{path}, line {line}", found=found, fix=fix)


def _read_txt(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    lines = _lines(path, content)
    for i, line in enumerate(lines):
        if "\r" in line:
            raise _broken(path, i + 1, "a carriage return stands inside the line", "End lines with a line feed.")
    return [PromptRow(f"line {i + 1}", {text_column: line}) for i, line in enumerate(lines)]


def _read_jsonl(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    rows = []
    for i, line in enumerate(_lines(path, content)):
        try:
            values = json.loads(line, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            why = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise _broken(path, i + 1, f"it is not JSON: {why}", "Write one JSON object a line.") from error
        if not isinstance(values, dict):
            kind = type(values).__name__
            raise _broken(path, i + 1, f"it is a {kind}, not an object", f'Write {{"{text_column}": "..."}} on it.')
        rows.append(PromptRow(f"line {i + 1}", values))
    return rows


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key stands in it twice")
    return values


def _read_csv(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    text = _decoded(path, content)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    cells: list[list[str]] = []
    lines: list[int] = []
    start = 1
    longest = csv.field_size_limit(max(len(text), 1))  # a text may be as long as its file
    try:
        for row in reader:
            cells.append(row)
            lines.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise _broken(path, start, f"it is not CSV: {error}", "Close quotes, and double those inside.") from error
    finally:
        csv.field_size_limit(longest)
    while cells and not cells[-1]:
        cells.pop()
    if not cells:
        return []
    header = cells[0]
    if len(set(header)) < len(header):
        raise _broken(path, 1, f"a column stands in the header twice: {header}", "Give every column its own name.")
    for row, line in zip(cells, lines, strict=False):
        if len(row) != len(header):
            found = f"it has {len(row)} cells, the header has {len(header)}"
            raise _broken(path, line, found, "Put texts that hold a comma or a line break in double quotes.")
    columns = [_typed(column) for column in zip(*cells[1:], strict=True)]
    return [
        PromptRow(f"line {line}", dict(zip(header, row, strict=True)))
        for row, line in zip(zip(*columns, strict=True), lines[1:], strict=False)
    ]


def _typed(cells: Sequence[str]) -> Sequence[str] | list[int] | list[float]:
    """A CSV column as numbers where every cell is one as a number is written (`007` is a name)."""
    # integers too long for exact arithmetic are names as well
    if all(_INTEGER.fullmatch(cell) for cell in cells):
        return [int(cell) for cell in cells]
    if all(_NUMBER.fullmatch(cell) for cell in cells):
        return [float(cell) for cell in cells]
    return cells


def _read_parquet(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(pyarrow.BufferReader(content), page_checksum_verification=True)
        return rows_of_table(table, str(path))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise PromptError(
            asked=f"the prompts of {path}",
            found=f"it cannot be read as Parquet: {why}",
            fix="Write it again, for instance with `frame.to_parquet(path, index=False)`.",
        ) from error


READERS: dict[str, Callable[[Path, bytes, str], list[PromptRow]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
"""By ending: path (for messages), content and the name of the text column to rows."""
