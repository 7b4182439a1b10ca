"""Prompts from a data set of `datasets`, on the hub or in a local folder: `hf:PATH:CONFIG:SPLIT:COLUMN`.

The first ten rows per requested prompt are streamed, and the prompts are drawn among them with the seed, in their
stored order. A small data set gives exactly what a file of its rows would give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from interp.errors import PromptError, UsageError, optional_part
from interp.loading.quiet_libraries import quiet_libraries
from interp.options import RunOptions
from interp.prompt import PromptSet
from interp.prompting.arrow_rows import class_names, class_of
from interp.prompting.rows import PromptRow, PromptTable, prompt_set
from interp.system.foreign_files import readable

HUB = "hf:"
FORM = f"The form is {HUB}PATH:CONFIG:SPLIT:COLUMN; parts at the end can go, others be empty ({HUB}folder::train:text)."

N_POOL = 1000
"""Prompts that are drawn by default; all of them if there are fewer."""

ROWS_PER_PROMPT = 10
"""Rows read per prompt drawn: neighbours in a file are often similar, so the draw should reach beyond them."""


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:PATH:CONFIG:SPLIT:COLUMN`; None for an empty part, which is then the only choice there is."""

    path: str
    config: str | None = None
    split: str | None = None
    column: str | None = None

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """The parts of a name that starts with `hf:`; raises `PromptError` for more than four, or without a path."""
        path, *others = name.removeprefix(HUB).split(":")
        if not path or len(others) > 3:
            found = f"it has {len(others) + 1} parts" if path else "it names no data set"
            raise PromptError(asked=f"the prompts {name!r}", found=found, fix=FORM)
        return cls(path, *(part or None for part in others))

    def __str__(self) -> str:
        return HUB + ":".join(part or "" for part in (self.path, self.config, self.split, self.column)).rstrip(":")

    def refused(self, found: str, fix: str) -> PromptError:
        """An error about this data set; a fix that mentions parts of the name shows its form."""
        return PromptError(asked=f"the prompts {self}", found=found, fix=f"{fix} {FORM}" if " part" in fix else fix)


def hub_prompts(asked: RunOptions) -> PromptSet:
    """The prompts of a run (by default 1000, or all if there are fewer) from a data set, in stored order.

    Rows without a text are skipped, texts follow the rules of a file, and columns that a file could not have are left
    out; `source` says what was read, skipped and left out. Raises `PromptError` for an unknown, gated or unreachable
    data set, or a missing configuration, split or column.
    """
    name, n_pool = str(asked.prompts), asked.n_pool
    where = HubName.parse(name)
    if where.column and asked.text_column not in ("text", where.column):
        raise UsageError(
            asked=f"the column {asked.text_column!r} of {name}",
            found=f"the name itself says {where.column!r}",
            fix="Keep the one you mean.",
        )
    column = where.column or asked.text_column
    n_wanted = N_POOL if n_pool is None else n_pool
    n_read = ROWS_PER_PROMPT * n_wanted
    read, described, left_out = _read_rows(where, column, n_read)
    rows = [PromptRow(f"row {i + 1}", row) for i, row in enumerate(read) if row.get(column) is not None]
    rows = [row for row in rows if str(row.values[column]).strip()]
    n, is_whole = len(rows), len(read) < n_read
    if n_pool is not None and n < n_pool:
        raise PromptError(
            asked=f"{n_pool} prompts of {name}",
            found=f"{n} of its {'' if is_whole else 'first '}{len(read)} rows hold a text",
            fix=f"Ask for 1 to {n}, or leave the number out." if rows else "Name another split or column.",
        )
    source = f"{'all' if is_whole else 'the first'} {len(read)} rows of {described}"
    if n < len(read):
        source += f"; {len(read) - n} rows without a text are passed over"
    if n > n_wanted:
        rows = [rows[i] for i in np.sort(np.random.default_rng(asked.seed).permutation(n)[:n_wanted])]
        source = f"{n_wanted} drawn (seed {asked.seed}) from {source}"
    found = _with_usable_columns(PromptTable(name, rows, column, source), left_out)
    return replace(found, seed=asked.seed) if n > n_wanted else found


def _read_rows(where: HubName, column: str, n: int) -> tuple[list[dict[str, Any]], str, dict[str, str]]:
    """The first `n` rows of the split with classes by name, its description, and the columns left out, with reasons.

    Columns that no prompt can hold, such as images, are not fetched.
    """
    fix = "Name a configuration as the second part, or try it in Python and hand over the `Dataset`. " + FORM
    readably = readable(f"the prompts {where}", fix, found="`datasets` cannot read it", error=PromptError)
    with optional_part("hub", f"the prompts {where}"):
        from datasets import ClassLabel, Value, load_dataset_builder
        from datasets import utils as of_datasets
        from huggingface_hub import utils as of_hub
    with quiet_libraries(of_datasets, of_hub), readably:
        folder = Path(where.path).expanduser()
        builder: Any = load_dataset_builder(str(folder) if folder.is_dir() else where.path, where.config)
        splits = builder.as_streaming_dataset()
        split = _split(where, list(splits))
        rows, left_out = splits[split], {}
        if rows.features is not None:
            kinds = {name: type(kind) for name, kind in rows.features.items()}
            kept = [name for name, kind in kinds.items() if issubclass(kind, Value | ClassLabel)]
            left_out = {name: f"values of the type {kind.__name__}" for name, kind in kinds.items() if name not in kept}
            rows = rows.select_columns(kept)
        read = list(islice(rows, n))
        known = list(rows.features or dict.fromkeys(name for row in read for name in row))
        if column in left_out:
            raise where.refused(f"{column!r} holds {left_out[column]}, not texts", "Name another column.")
        if column not in known:
            raise where.refused(
                f"it has no column {column!r}; it has {', '.join(map(repr, known)) or 'no column of plain values'}",
                "Name the one that holds the texts as the fourth part.",
            )
        if not read:
            raise where.refused("there is no row in it", "Name another split.")
        classes = class_names(rows.features and rows.features.to_dict())
        revision = str(builder.base_path).partition("@")[2].partition("/")[0]
        parts = [builder.config.name, split, revision and f"revision {revision[:12]}"]
        described = f"{where.path} ({', '.join(part for part in parts if part and part != 'default')})"
        named = [row | {name: class_of(row.get(name), names) for name, names in classes.items()} for row in read]
        return named, described, left_out


def _split(where: HubName, splits: list[str]) -> str:
    shown = ", ".join(splits)
    if where.split is None:
        if "train" in splits or len(splits) == 1:
            return "train" if "train" in splits else splits[0]
        raise where.refused(f"no split is named, and it has {shown}", "Name one of them as the third part.")
    if where.split not in splits:
        raise where.refused(f"it has no split {where.split!r}; it has {shown}", "Name one of them (no slices).")
    return where.split


def _with_usable_columns(table: PromptTable, left_out: Mapping[str, str]) -> PromptSet:
    """The rows as a set with every column that a file could have; `source` names the others, with the reason."""
    columns, reasons = [table.text_column], dict(left_out)

    def having(columns: Sequence[str]) -> PromptSet:
        rows = [PromptRow(row.place, {column: row.values.get(column) for column in columns}) for row in table.rows]
        return prompt_set(replace(table, rows=rows))

    for column in dict.fromkeys(column for row in table.rows for column in row.values if column != table.text_column):
        try:
            having([table.text_column, column])
        except PromptError as error:
            reasons[column] = error.found  # readers of a data set, unlike owners of a file, cannot correct it
        else:
            columns.append(column)
    found = having(columns)
    remarks = ", ".join(f"{column!r} ({reason})" for column, reason in reasons.items())
    return replace(found, source=found.source + (f"; columns left out: {remarks}" if remarks else ""))
