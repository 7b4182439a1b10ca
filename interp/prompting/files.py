"""Prompts from where users keep them: files, lists, data sets of `datasets`, and the registered sets by name."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import PromptError, UnknownName
from interp.model import Model
from interp.prompt import Prompt, Prompts, PromptSet, refuse_size
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.chat import MESSAGES, as_chat, is_message, prompts_of_rows
from interp.prompting.formats import READERS
from interp.prompting.hub import HUB, hub_prompts
from interp.prompting.rows import PromptRow, prompt_set, units_of
from interp.registry import entries, load_entry
from interp.system.plain_numbers import path as plain_path
from interp.system.plain_numbers import plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def prompts_in_memory(given: Any, text_column: str, tokenizer: "PreTrainedTokenizerBase | None") -> PromptSet:
    """A set itself, a table or data set by its columns, and texts, conversations, rows, ids or `Prompt`s in a row.

    Raises `PromptError` for anything else.
    """
    if isinstance(given, PromptSet):
        return given
    is_dataset = type(given).__module__.partition(".")[0] == "datasets"
    if is_dataset or (hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns")):
        rows, name = _rows_of_dataset(given) if is_dataset else (_rows_of_frame(given), "table")
        source = f"{len(rows)} prompts from the {'data set' if is_dataset else 'columns of a'} {name}"
        return prompts_of_rows(name, rows, text_column, source, tokenizer)
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
    if listed and all(_is_ids(each) for each in listed):
        return PromptSet("ids", [Prompt(token_ids=each) for each in listed], source=source.format("rows of token ids"))
    rows = _rows_of_list(listed, text_column)
    what = "texts" if text_column in (rows[0].values if rows else {}) else "prompts"
    return prompts_of_rows("texts", rows, text_column, source.format(what), tokenizer)


def _listed(given: Any) -> Any:
    """The entries of a series, an array or a generator as a list, numbers and arrays among them as Python's own."""
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(given, method):
            return getattr(given, method)()
    listed = list(given) if isinstance(given, Iterator) else given
    return [plain(each) for each in listed] if isinstance(listed, list | tuple) else listed


def _is_ids(each: Any) -> bool:
    return isinstance(each, list | tuple) and bool(each) and all(type(i) is int for i in each)


def _rows_of_list(prompts: Sequence[Any], text_column: str) -> list[PromptRow]:
    """A list of texts, of conversations, or of rows; a list of messages is one conversation."""
    given = [list(prompts)] if prompts and all(is_message(each) for each in prompts) else prompts
    return [PromptRow(f"text {i + 1}", _values(each, text_column)) for i, each in enumerate(given)]


def _values(each: Any, text_column: str) -> dict[str, Any]:
    if isinstance(each, Mapping):
        return {column: value if column == MESSAGES else plain(value) for column, value in each.items()}
    return {MESSAGES if isinstance(each, list) else text_column: each}


def _rows_of_frame(frame: Any) -> list[PromptRow]:
    """The rows of a table of pandas, Polars or Arrow; an index of pandas numbers them and is no column."""
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
    """The rows of a `datasets.Dataset`, whatever format it is set to, all columns kept, and its name."""
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


def resolve_prompts(
    prompts: Any,
    n_pool: int | None = None,
    seed: int = 0,
    *,
    text_column: str = "text",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    chat: bool = False,
) -> PromptSet:
    """The prompt set that `prompts` stands for.

    A registered name (which wins over a file of that name: write `./name` for the file), a path, `hf:` and whatever
    `datasets` loads (see interp.prompting.hub), a `PromptSet`, a list, array, series or generator of texts, of
    conversations (each a list of `{"role", "content"}`), of rows (dictionaries of columns), of token ids or of
    `Prompt`s, a table of pandas, Polars or Arrow, or a `datasets.Dataset`. A column `messages` holds
    conversations: they go through the tokenizer's chat template; with `chat`, so does every text, as a user's message.
    `n_pool` takes
    that many, drawn with `seed`; a built-in set keeps its domains and last classes balanced, anything else is drawn at
    random; their order stays. A set that is made for one tokenizer (`needs_tokenizer`) is given `tokenizer`. Raises
    `PromptError` for a name that is neither, with the nearest names.
    """
    found = _resolved(prompts, n_pool, seed, text_column, tokenizer)
    return as_chat(found, tokenizer) if chat else found


def _resolved(
    prompts: Any, n_pool: int | None, seed: int, text_column: str, tokenizer: "PreTrainedTokenizerBase | None"
) -> PromptSet:
    if isinstance(prompts, str) and prompts in entries("prompt"):
        make = load_entry("prompt", prompts)
        if not needs_tokenizer(make):
            return make(n_pool=n_pool, seed=seed)
        if tokenizer is None:
            raise PromptError(
                asked=f"the prompts {prompts!r}",
                found="they are made for a tokenizer, and this model has none",
                fix="Use them on a language model.",
            )
        return make(n_pool=n_pool, seed=seed, tokenizer=tokenizer)
    if isinstance(prompts, str) and prompts.startswith(HUB):
        return hub_prompts(prompts, n_pool, seed, text_column=text_column)
    if isinstance(prompts, str | Path):
        found = read_prompts(_path_of(prompts) if isinstance(prompts, str) else prompts, text_column, tokenizer)
    else:
        found = prompts_in_memory(prompts, text_column, tokenizer)
    return found if n_pool is None else _subset(found, n_pool, seed)


def given_prompts(model: Model, prompts: Prompts, seed: int = 0) -> PromptSet:
    """The prompts of a call; a string that names no set and no file is itself a text, on a language model."""
    if model.tokenizer is not None and isinstance(prompts, str) and not _is_name(prompts):
        prompts = [prompts]
    return resolve_prompts(prompts, seed=seed, tokenizer=model.tokenizer)


def _is_name(prompts: str) -> bool:
    if prompts in entries("prompt") or prompts.startswith(HUB):
        return True
    names_file = not prompts.count(" ") and prompts.lower().endswith(tuple(READERS))
    return names_file or _is_file(plain_path(prompts))


def needs_tokenizer(make: Callable[..., PromptSet]) -> bool:
    """Whether a registered set takes the tokenizer it is made for as `tokenizer`."""
    return "tokenizer" in signature(make).parameters


def read_prompts(
    path: str | Path, text_column: str = "text", tokenizer: "PreTrainedTokenizerBase | None" = None
) -> PromptSet:
    """The prompts of a .jsonl, .csv, .parquet or .txt file (one prompt a line), every other column kept.

    A column `messages` in place of the texts holds conversations, which `tokenizer` writes out.

    Text is UTF-8, or UTF-16 with its mark. A column of a CSV is numbers where more of its cells are numbers than words.
    Raises `PromptError` with the line, or the row of a Parquet file, for whatever cannot be used.
    """
    path = plain_path(path)
    rows = _rows_of_file(path, text_column)
    return prompts_of_rows(str(path), rows, text_column, f"{len(rows)} prompts from {path.name}", tokenizer)


def prompts_of_file(name: str, text_column: str = "text") -> PromptSet | None:
    """The prompts of a file, for those who have no model yet; None for what needs one, or the hub.

    Raises `PromptError` for a name that is neither a registered set nor a file of prompts.
    """
    if name in entries("prompt") or name.startswith(HUB):
        return None
    path = _path_of(name)
    rows = _rows_of_file(path, text_column)
    has_messages = bool(rows) and MESSAGES in rows[0].values and text_column != MESSAGES
    return None if has_messages else prompt_set(str(path), rows, text_column, path.name)


def _path_of(name: str) -> Path:
    path = plain_path(name)
    if not _is_file(path) and path.suffix.lower() not in READERS:
        raise _unknown(name)
    return path


def _rows_of_file(path: Path, text_column: str) -> Sequence[PromptRow]:
    read = READERS.get(path.suffix.lower())
    if read is None:
        raise PromptError(
            asked=f"the prompts of {path}",
            found=f"the ending {path.suffix!r} is not one that is read" if path.suffix else "the name has no ending",
            fix=f"Known endings: {', '.join(READERS)}.",
        )
    return read(path, _content(path), text_column)


def _unknown(name: str) -> PromptError:
    nearest = UnknownName("prompt", name, entries("prompt"))
    if len(name.split()) > 2:
        return PromptError(
            asked=f"the prompts {name[:60]!r}",
            found="this is neither a prompt set nor a file",
            fix="If it is a text to be read, put it in a list: prompts=[...].",
        )
    return PromptError(
        asked=f"the prompts {name!r}",
        found="there is no prompt set of this name, and no such file",
        fix=f"{nearest.fix} A file ends in {', '.join(READERS)}.",
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long for the file system, or with a NUL in it
        return False


def _subset(prompts: PromptSet, n_pool: int, seed: int) -> PromptSet:
    refuse_size(prompts.name, n_pool, len(prompts))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(prompts))[:n_pool])
    source = f"{n_pool} drawn (seed {seed}) of: {prompts.source or prompts.name}"
    return replace(prompts.take(chosen), source=source, seed=seed)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise PromptError(
            asked=f"the prompts of {path}", found=why, fix="Give the path of a file that can be read."
        ) from error
