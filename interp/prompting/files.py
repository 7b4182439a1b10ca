"""Prompts from registered names, files, lists, tables and data sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import PromptError, UnknownName
from interp.model import Model
from interp.options import RunOptions
from interp.prompt import Prompt, Prompts, PromptSet
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.chat import as_chat, is_message, prompts_of_table
from interp.prompting.formats import READERS
from interp.prompting.hub import HUB, hub_prompts
from interp.prompting.rows import MESSAGES, PromptRow, PromptTable, prompt_set, units_of
from interp.registry import entries, load_entry
from interp.system.foreign_files import in_words, is_file, is_folder
from interp.system.plain_numbers import path as plain_path
from interp.system.plain_numbers import plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def resolve_prompts(asked: RunOptions, tokenizer: "PreTrainedTokenizerBase | None" = None) -> PromptSet:
    """The prompt set that the options of a run name.

    A registered name (which wins over a file of that name: write `./name` for the file), a path, `hf:` and a data set
    (see interp.prompting.hub), a `PromptSet`, a list, array, series or generator of texts, of conversations (each a
    list of `{"role", "content"}`), of rows (dictionaries of columns), of token ids or of `Prompt`s, a table of pandas,
    Polars or Arrow, or a `datasets.Dataset`. The tokenizer's chat template renders a column `messages` and, with
    `chat`, every text as a user's message. `n_pool` prompts are drawn with `seed` and keep their order; a built-in set
    stays balanced. Raises `PromptError`, with the nearest names, for an unknown name.
    """
    prompts, n_pool, seed = asked.prompts, asked.n_pool, asked.seed
    if isinstance(prompts, str) and prompts in entries("prompt"):
        refuse_column(prompts, asked.text_column)
        make = load_entry("prompt", prompts)
        made_for = {"tokenizer": tokenizer} if needs_tokenizer(make) else {}
        if made_for and tokenizer is None:
            raise PromptError(
                asked=f"the prompts {prompts!r}",
                found="they are made for a tokenizer, and this model has none",
                fix="Use them on a language model.",
            )
        found = make(n_pool=n_pool, seed=seed, **made_for)
    elif isinstance(prompts, str) and prompts.startswith(HUB):
        found = hub_prompts(asked)
    else:
        column = asked.text_column
        held = _table_of_file(prompts, column) if isinstance(prompts, str | Path) else _in_memory(prompts, column)
        if isinstance(held, PromptSet):
            refuse_column(held.name, column)
        found = held if isinstance(held, PromptSet) else prompts_of_table(held, tokenizer)
        n_all, rng = len(found), np.random.default_rng(seed)
        found = found.draw(n_pool, seed, "", lambda n: np.sort(rng.permutation(n_all)[:n]))
    return as_chat(found, tokenizer) if asked.chat else found


def given_prompts(model: Model, prompts: Prompts, seed: int = 0) -> PromptSet:
    """The prompts of a call; for a language model, a string that names no set and no file is a text."""
    if model.tokenizer is not None and isinstance(prompts, str) and not _is_name(prompts):
        prompts = [prompts]
    return resolve_prompts(RunOptions(prompts=prompts, seed=seed), model.tokenizer)


def _is_name(prompts: str) -> bool:
    if prompts in entries("prompt") or prompts.startswith(HUB):
        return True
    names_file = not prompts.count(" ") and prompts.lower().endswith(tuple(READERS))
    return names_file or (prompts != "" and (is_file(path := plain_path(prompts)) or is_folder(path)))


def needs_tokenizer(make: Callable[..., PromptSet]) -> bool:
    """Whether a registered set is made for a tokenizer, which it takes as `tokenizer`."""
    return "tokenizer" in signature(make).parameters


def refuse_wrong_file(name: str, text_column: str) -> None:
    """Raise `PromptError`, before a model is loaded, for a name that is neither a registered set nor a file of prompts.

    What needs a tokenizer or the hub is checked later.
    """
    if name in entries("prompt"):
        refuse_column(name, text_column)
    elif not name.startswith(HUB):
        table = _table_of_file(name, text_column)
        if not table.has_messages:
            prompt_set(table)


def refuse_column(name: str, text_column: str) -> None:
    """Raise `PromptError` if a text column is named for prompts that are not a table."""
    if text_column != RunOptions.text_column:
        fix = "Leave out --text-column (text_column); it is for files, tables and data sets."
        raise PromptError(asked=f"the column {text_column!r} of the prompts {name!r}", found="they have none", fix=fix)


def _table_of_file(prompts: str | Path, text_column: str) -> PromptTable:
    """The rows of a .jsonl, .csv, .tsv, .parquet or .txt file (one prompt a line), with all columns.

    Raises `PromptError` with the line, or the row of a Parquet file, for anything that cannot be used.
    """
    path = plain_path(prompts or Path())
    read = READERS.get(path.suffix.lower())
    if str(prompts) and is_folder(path):
        fix = f"{HUB}{path} reads the data set in it; a text of this name goes into a list."
        raise PromptError(asked=f"the prompts {str(prompts)!r}", found="it is a folder", fix=fix)
    if read is None and isinstance(prompts, str) and not is_file(path):
        raise _unknown(prompts)
    if read is None:
        raise PromptError(
            asked=f"the prompts of {path}",
            found=f"the ending {path.suffix!r} is not one that is read" if path.suffix else "the name has no ending",
            fix=f"Known endings: {', '.join(READERS)}.",
        )
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise PromptError(
            asked=f"the prompts of {path}", found=in_words(error), fix="Give the path of a file that can be read."
        ) from error
    rows = read(path, content, text_column)
    return PromptTable(str(path), rows, text_column, f"{len(rows)} prompts from {path.name}")


def _unknown(name: str) -> PromptError:
    nearest, is_text = UnknownName("prompt", name, entries("prompt")).fix, len(name.split()) > 2
    return PromptError(
        asked=f"the prompts {name[:60]!r}",
        found="there is no prompt set of this name, and no such file",
        fix="If it is a text to be read, put it in a list: prompts=[...]."
        if is_text
        else f"{nearest} A file ends in {', '.join(READERS)}.",
    )


def _in_memory(given: Any, text_column: str) -> PromptSet | PromptTable:
    """Prompts that are given as an object, not by name; raises `PromptError` for anything unusable."""
    if isinstance(given, PromptSet):
        return given
    is_dataset = type(given).__module__.partition(".")[0] == "datasets"
    if is_dataset or (hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns")):
        rows, name = _rows_of_dataset(given) if is_dataset else (_rows_of_frame(given), "table")
        source = f"{len(rows)} prompts from the {'data set' if is_dataset else 'columns of a'} {name}"
        return PromptTable(name, rows, text_column, source)
    listed = _listed(given)
    if not isinstance(listed, Sequence) or isinstance(listed, bytes | str):
        raise PromptError(
            asked="the prompts of a run",
            found=f"they are a {type(given).__name__}",
            fix="Give a registered name, a path, a list of texts, a table, a PromptSet or a datasets.Dataset.",
        )
    source = f"{len(listed)} {{}} given in the call"
    if listed and all(isinstance(each, Prompt) for each in listed):
        return PromptSet("prompts", listed, units=units_of("prompts", listed), source=source.format("prompts"))
    if any(listed) and all(isinstance(each, list | tuple) and {*map(type, each)} <= {int} for each in listed):
        return PromptSet("ids", [Prompt(token_ids=each) for each in listed], source=source.format("rows of token ids"))
    chats = [list(listed)] if listed and all(is_message(each) for each in listed) else listed  # one of them, or several
    rows = [PromptRow(f"text {i + 1}", _values(each, text_column)) for i, each in enumerate(chats)]
    what = "texts" if text_column in (rows[0].values if rows else {}) else "prompts"
    return PromptTable("texts", rows, text_column, source.format(what))


def _listed(given: Any) -> Any:
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(given, method):
            return getattr(given, method)()
    listed = list(given) if isinstance(given, Iterator) else given
    return [plain(each) for each in listed] if isinstance(listed, list | tuple) else listed


def _values(each: Any, text_column: str) -> dict[str, Any]:
    if isinstance(each, Mapping):
        return {column: value if column == MESSAGES else plain(value) for column, value in each.items()}
    return {MESSAGES if isinstance(each, list) else text_column: each}


def _rows_of_frame(frame: Any) -> list[PromptRow]:
    import pyarrow

    try:
        table = pyarrow.table(frame.reset_index(drop=True) if hasattr(frame, "reset_index") else frame)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise PromptError(
            asked=f"the prompts of a {type(frame).__name__}",
            found=f"a column cannot be read: {' '.join(str(error).split())[:200]}",
            fix="Give every column values of one kind: texts, numbers or truth values.",
        ) from error
    return rows_of_table(table, f"the {type(frame).__name__}")


def _rows_of_dataset(dataset: Any) -> tuple[list[PromptRow], str]:
    """The rows of a `datasets.Dataset` in any format, with all columns, and its name."""
    from datasets import Dataset

    if not isinstance(dataset, Dataset):
        raise PromptError(
            asked="the prompts of a run",
            found=f"they are a {type(dataset).__name__}, which has no fixed rows",
            fix="Choose a split (`dataset['train']`), or take some rows of a stream into a list.",
        )
    table: Any = dataset.with_format("arrow")[:]
    name = dataset.info.dataset_name or "dataset"
    return rows_of_table(table, f"the data set {name}"), name
