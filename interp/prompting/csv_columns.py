"""Whether a column of a CSV file holds numbers or names: the file does not say it, so its cells have to."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from interp.prompting.rows import broken_line

_INTEGER = re.compile(r"[+-]?[0-9]+")
_CODE = re.compile(r"0[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MARKED = re.compile(r"[-+−]?[$€£]? ?([0-9]{1,3}([,.'’_\s][0-9]{3})+([.,][0-9]+)?|[0-9]*[,.]?[0-9]+) ?[%$€£]?")
_GAPS = frozenset({"", "-", "?", "#n/a", "n/a", "na", "nan", "-nan", "null", "none", "inf", "+inf", "-inf", "infinity"})
_MOST_DIGITS = 400
"""Behind these no float is finite, and Python itself reads no integer much longer."""


def typed(path: Path, name: str, cells: Sequence[str], lines: Sequence[int]) -> Sequence[str] | list[int] | list[float]:
    """The cells as numbers where more of them are numbers than words, else as names; `007` and its like are names.

    Then each has to be one: `PromptError` names the line of the first that is a gap, a word, or written with marks
    (`1,250`, `12 %`). White space around a number is no part of it.
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
