"""The formats of prompt files: the bytes of a .jsonl, .csv, .parquet or .txt file as rows, each with its place."""

import codecs
import json
from collections.abc import Callable
from pathlib import Path

from interp.errors import PromptError
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.csv_file import read_csv
from interp.prompting.rows import PromptRow, broken_line
from interp.records.parquet_files import read_rows
from interp.system.foreign_files import readable

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def _decoded(path: Path, content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 where it begins with the mark of that."""
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    try:
        return content.removeprefix(mark).decode(_MARKS.get(mark, "utf-8"))
    except UnicodeDecodeError as error:
        offset = len(mark) + error.start
        line = content.count(b"\n", 0, offset) + 1
        found = f"byte {offset} of the file (0x{content[offset]:02x}) is not {_MARKS.get(mark, 'utf-8').upper()}"
        raise broken_line(path, line, found, "Save the file as UTF-8.") from error


def _lines(path: Path, content: bytes) -> list[str]:
    """Lines as editors count them, without the blank ones at the end; a blank one between others is refused."""
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
            raise broken_line(path, i + 1, "a carriage return stands inside the line", "End lines with a line feed.")
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
        raise ValueError("a key stands in it twice")
    return values


def _read_csv(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    return read_csv(path, _decoded(path, content), text_column)


def _read_parquet(path: Path, content: bytes, text_column: str) -> list[PromptRow]:
    fix = "Write it again, for instance with `frame.to_parquet(path, index=False)`."
    with readable(f"the prompts of {path}", fix, found="it cannot be read as Parquet", error=PromptError):
        return rows_of_table(read_rows(content), str(path))


READERS: dict[str, Callable[[Path, bytes, str], list[PromptRow]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
"""By ending: path (for messages), content and the name of the text column to rows."""
