"""Arrow tables, from Parquet files, `datasets`, pandas and Polars, as rows."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.errors import PromptError
from interp.prompting.rows import MESSAGES, PromptRow

if TYPE_CHECKING:
    import pyarrow

_PLAIN = ("string", "large_string", "string_view", "integer", "floating", "boolean", "null")


def rows_of_table(table: "pyarrow.Table", owner: str) -> list[PromptRow]:
    """The rows of a table as Python values, with the names of classes in place of their numbers.

    Raises `PromptError` for a column of another type, and for a repeated name.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        raise PromptError(asked=f"the columns of {owner}", found=f"a name is repeated: {names}", fix="Rename one.")
    metadata = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    classes = class_names(_inside(_inside(metadata, "info"), "features"))
    columns = [
        [class_of(value, classes[name]) for value in values] if name in classes else values
        for name, values in ((name, _plain(owner, name, table.column(name))) for name in names)
    ]
    return [
        PromptRow(f"row {i + 1}", dict(zip(names, row, strict=True)))
        for i, row in enumerate(zip(*columns, strict=True))
    ]


def class_names(features: object) -> dict[str, Sequence[str]]:
    """The class names of every ClassLabel column, from features as `datasets` writes them."""
    columns = features.items() if isinstance(features, Mapping) else ()
    names = {column: _inside(kind, "names") for column, kind in columns if _inside(kind, "_type") == "ClassLabel"}
    return {column: found if isinstance(found, list) else [] for column, found in names.items()}


def class_of(value: object, names: Sequence[str]) -> str | None:
    """The name of a class; None for a value without one, such as the -1 of a hidden label."""
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def _inside(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _plain(owner: str, name: str, column: "pyarrow.ChunkedArray") -> list[Any]:
    import pyarrow
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if name == MESSAGES and types.is_list(kind) and types.is_struct(kind.value_type):
        return [chat and [_as_given(message) for message in chat] for chat in column.to_pylist()]
    if not any(getattr(types, f"is_{plain}")(kind) for plain in _PLAIN):
        raise PromptError(
            asked=f"the column {name!r} of {owner}",
            found=f"it holds values of the type {kind}",
            fix="Write it as texts or numbers, or leave it out.",
        )
    return (column.cast(pyarrow.float64()) if types.is_floating(kind) else column).to_pylist()


def _as_given(value: Any) -> Any:
    """A message without the empty keys that Arrow adds because another message of the column has them."""
    if isinstance(value, list):
        return [_as_given(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _as_given(entry) for key, entry in value.items() if entry is not None or key == "content"}
    return value
