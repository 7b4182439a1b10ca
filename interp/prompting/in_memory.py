"""Prompts from whatever holds them in memory: lists, arrays, tables, data sets and generators."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.errors import PromptError
from interp.prompt import Prompt, PromptSet
from interp.prompting.arrow_rows import rows_of_table
from interp.prompting.chat import MESSAGES, is_message, prompts_of_rows
from interp.prompting.rows import PromptRow, units_of
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
