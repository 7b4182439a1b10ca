"""Prompts from any data set that `datasets` loads, on the hub or in a local folder: `hf:PATH:CONFIG:SPLIT:COLUMN`.

The rows are streamed: the first ten for every prompt asked for are read and never the whole set, and the prompts are
drawn among them with the seed. They come in their stored order, so a set that is small enough gives exactly what a
file of its rows would give.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interp.errors import PromptError, UsageError
from interp.prompt import PromptSet
from interp.prompting.hub_stream import HubName, open_stream, read_rows
from interp.prompting.rows import PromptRow, prompt_set

N_POOL = 1000
"""Prompts that are taken where nobody says how many; all of them where there are fewer."""

ROWS_PER_PROMPT = 10
"""Rows read for each prompt taken: neighbours in a file are often alike, so the draw should reach beyond them."""


def hub_prompts(name: str, n_pool: int | None = None, seed: int = 0, *, text_column: str = "text") -> PromptSet:
    """`n_pool` prompts (default 1000, or all there are) of the data set that `name` stands for, in stored order.

    Drawn with `seed`, without replacement, from the first `10 * n_pool` rows of a split; rows without a text are
    passed over. Texts are held to the rules of a file. Other columns are kept where every value is a number, a truth
    value or a text under a name of its own. `source` tells what was read, passed over and left out.
    Raises `PromptError`: unknown, gated or unreachable data set, a configuration, split or column that is not there.
    """
    where = HubName.parse(name)
    column = _text_column(name, where.column, text_column)
    if n_pool is not None and n_pool < 1:
        raise PromptError(asked=f"{n_pool} prompts of {name}", found="that is none", fix="Ask for at least one.")
    n_wanted = N_POOL if n_pool is None else n_pool
    n_read = ROWS_PER_PROMPT * n_wanted
    stream = open_stream(where)
    read = read_rows(stream, where, column, n_read)
    rows = [PromptRow(f"row {i + 1}", row) for i, row in enumerate(read) if not _is_blank(row.get(column))]
    is_whole = len(read) < n_read
    if n_pool is not None and len(rows) < n_pool:
        raise PromptError(
            asked=f"{n_pool} prompts of {name}",
            found=f"{len(rows)} of its {'' if is_whole else 'first '}{len(read)} rows hold a text",
            fix=f"Ask for 1 to {len(rows)}, or leave the number out." if rows else "Name another split or column.",
        )
    source = f"{'all' if is_whole else 'the first'} {len(read)} rows of {stream.described}"
    if len(rows) < len(read):
        source += f"; {len(read) - len(rows)} rows without a text are passed over"
    if len(rows) <= n_wanted:
        return _with_usable_columns(name, rows, column, source, stream.left_out)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:n_wanted])
    source = f"{n_wanted} drawn (seed {seed}) from {source}"
    found = _with_usable_columns(name, [rows[i] for i in chosen], column, source, stream.left_out)
    return replace(found, seed=seed)


def _text_column(name: str, in_name: str | None, text_column: str) -> str:
    """The column that holds the texts: the one in the name, or else the one that was asked for beside it."""
    if in_name and text_column not in ("text", in_name):
        raise UsageError(
            asked=f"the column {text_column!r} of {name}",
            found=f"the name itself says {in_name!r}",
            fix="Keep the one you mean.",
        )
    return in_name or text_column


def _is_blank(text: object) -> bool:
    return text is None or (isinstance(text, str) and not text.strip())


def _with_usable_columns(
    name: str, rows: Sequence[PromptRow], text_column: str, source: str, left_out: Mapping[str, str]
) -> PromptSet:
    """The rows as a set with every column that a file could have; the others are named in `source`, with the reason."""
    found = prompt_set(name, _only(rows, (text_column,)), text_column, source)
    columns: list[str] = []
    reasons = dict(left_out)
    for column in dict.fromkeys(column for row in rows for column in row.values if column != text_column):
        try:
            prompt_set(name, _only(rows, (text_column, column)), text_column, source)
        except PromptError as error:
            # the owner of a file can mend it, the reader of somebody else's data set cannot
            reasons[column] = error.found
        else:
            columns.append(column)
    if columns:
        found = prompt_set(name, _only(rows, (text_column, *columns)), text_column, source)
    remarks = ", ".join(f"{column!r} ({reason})" for column, reason in reasons.items())
    return replace(found, source=found.source + (f"; columns left out: {remarks}" if remarks else ""))


def _only(rows: Sequence[PromptRow], columns: Sequence[str]) -> list[PromptRow]:
    return [PromptRow(row.place, {column: row.values.get(column) for column in columns}) for row in rows]
