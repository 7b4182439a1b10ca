"""Rows of named values, each with its place in the source, as a checked `PromptSet`."""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interp.errors import PromptError
from interp.prompt import Prompt, PromptSet
from interp.system.values import half_character
from interp.table import LABEL, ROW_UNITS

RESERVED = ROW_UNITS.keys() - {"cluster", "token_before"}
"""Columns that a capture adds to its rows, overwriting a prompt column of the same name."""

_LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class PromptRow:
    """The values of one prompt by column, and their place (`line 3`, `row 3`), for messages."""

    place: str
    values: Mapping[str, object]


MESSAGES = "messages"
"""The column that holds a conversation: a list of `{"role": ..., "content": ...}`, with what else a template reads."""


@dataclass(frozen=True)
class PromptTable:
    """Rows of a file, a list or a data set; the texts are in `text_column`, or made from its `messages`."""

    name: str
    rows: Sequence[PromptRow]
    text_column: str
    source: str

    @property
    def has_messages(self) -> bool:
        return bool(self.rows) and MESSAGES in self.rows[0].values and self.text_column != MESSAGES


def broken_line(path: Path, line: int, found: str, fix: str) -> PromptError:
    """The error for one line of a file."""
    return PromptError(asked=f"{path}, line {line}", found=found, fix=fix)


def prompt_set(table: PromptTable) -> PromptSet:
    """The prompts of a table of texts, with its other columns.

    Numbers get the unit `1` (`bits` if the name ends in `_bits`), strings and truth values are labels. Equal texts, and
    texts ending in white space, are kept and counted in `source`. Raises `PromptError`, naming the place, for anything
    that cannot be used.
    """
    name, rows, text_column = table.name, table.rows, table.text_column
    if not rows:
        raise PromptError(asked=name, found="there is no prompt in it", fix="Give at least one; a hundred is better.")
    _check_columns(table)
    for row in rows:
        for column, value in row.values.items():
            _check_value(f"{name}, {row.place}", column, value, is_text=column == text_column)
    units = {column: _unit(name, column, rows) for column in rows[0].values if column != text_column}
    prompts = [
        Prompt(text=str(row.values[text_column]), columns={k: row.values[k] for k in row.values if k != text_column})
        for row in rows
    ]
    texts = Counter(p.text for p in prompts)
    if len(prompts) > 1 and len(texts) == 1:
        raise PromptError(
            asked=name,
            found=f"all {len(prompts)} prompts are the same text: every row would be one and the same point",
            fix="Give different prompts, or this one alone.",
        )
    return PromptSet(name=name, prompts=prompts, units=units, source=table.source + _remarks(prompts, texts))


def units_of(name: str, prompts: Sequence[Prompt]) -> dict[str, str]:
    """The default units of the columns of a list of prompts."""
    values = [{**p.columns, **{name: each[0] for name, each in p.scored_columns.items() if each}} for p in prompts]
    rows = [PromptRow(f"prompt {i + 1}", each) for i, each in enumerate(values)]
    _check_same(name, rows)
    return {column: _unit(name, column, rows) for column in values[0]}


def _check_columns(table: PromptTable) -> None:
    name, columns = table.name, list(table.rows[0].values)
    if table.text_column not in columns:
        raise PromptError(
            asked=f"the column {table.text_column!r} of {name}",
            found=f"it has the columns {', '.join(map(repr, columns)) or 'none'}",
            fix="Call the one that holds the texts `text`, or name it to a run: --text-column NAME, text_column=NAME.",
        )
    for column in columns:
        if not column.strip() or _control_character(column):
            raise PromptError(
                asked=f"the columns of {name}",
                found=f"one of them is named {column!r}",
                fix="Give it a name, or leave it out (pandas writes an unnamed index unless you pass index=False).",
            )
    for column in sorted(RESERVED.intersection(columns) - {table.text_column}):
        raise PromptError(
            asked=f"the column {column!r} of {name}",
            found="every capture has a column of this name that it fills itself",
            fix="Rename it, or leave it out.",
        )
    _check_same(name, table.rows)


def _check_same(name: str, rows: Sequence[PromptRow]) -> None:
    for row in rows:
        if row.values.keys() != rows[0].values.keys():
            raise PromptError(
                asked=f"{name}, {row.place}",
                found=f"it has the columns {sorted(row.values)}, {rows[0].place} has {sorted(rows[0].values)}",
                fix="Give every prompt the same columns.",
            )


def _check_value(where: str, column: str, value: object, *, is_text: bool) -> None:
    if is_text and not isinstance(value, str):
        raise PromptError(
            asked=where,
            found=f"{column!r} holds {_shown(value)}, which is not a text",
            fix="Give a text there, or name another column.",
        )
    if isinstance(value, str):
        control = _control_character(value)
        if control is not None:
            found = f"the control character U+{ord(control):04X} at character {value.index(control)}"
            fix = "Remove it; tabs and line breaks are the only ones a text can have."
            raise PromptError(asked=where, found=f"{column!r} holds {found}", fix=fix)
        if found := half_character(value):
            raise PromptError(asked=where, found=f"{column!r} holds {found}", fix="Write the whole character.")
        if is_text and not value.strip():
            raise PromptError(asked=where, found="the prompt is empty", fix="Leave it out, or give it a text.")
        return
    usable = isinstance(value, bool) or (
        isinstance(value, int) and abs(value) <= _LARGEST_INTEGER
    ) or (isinstance(value, float) and math.isfinite(value))  # fmt: skip
    if not usable:
        raise PromptError(
            asked=where,
            found=f"the column {column!r} holds {_shown(value)}",
            fix="A column holds one finite number of 64 bits, truth value or text a prompt: fill it, or leave it out.",
        )


def _control_character(value: str) -> str | None:
    if value.isprintable():
        return None
    return next((c for c in value if unicodedata.category(c) == "Cc" and c not in "\t\n\r"), None)


def _unit(name: str, column: str, rows: Sequence[PromptRow]) -> str:
    kinds = [_kind(row.values[column]) for row in rows]
    for row, kind in zip(rows, kinds, strict=True):
        if kind != kinds[0]:
            raise PromptError(
                asked=f"{name}, {row.place}",
                found=f"the column {column!r} holds a {kind}, in {rows[0].place} it is a {kinds[0]}",
                fix="Write the same kind in every row (numbers plain, texts in quotes).",
            )
    if kinds[0] != "number":
        return LABEL
    return "bits" if column.endswith("_bits") else "1"


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "truth value" if isinstance(value, bool) else "number"


def _remarks(prompts: Sequence[Prompt], texts: Counter[str | None]) -> str:
    remarks = []
    n_repeats = len(prompts) - len(texts)
    if n_repeats:
        remarks.append(f"{n_repeats} of {len(prompts)} texts repeat an earlier one")
    n_blank = sum(p.text is not None and p.text[-1].isspace() for p in prompts)
    if n_blank:
        remarks.append(f"{n_blank} of {len(prompts)} texts end in white space, which is then their last token")
    return "".join(f"; {remark}" for remark in remarks)


def _shown(value: object) -> str:
    shown = "nothing" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
