"""Reading files that may be damaged: any exception of a library, from `zlib.error` to `RecursionError`, becomes an
`InterpError` whose cause it is."""

import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.errors import InterpError, RecordError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow


def is_file(name: str | Path) -> bool:
    """Whether there is a file of this name; False for names that are too long."""
    return os.path.isfile(name)  # noqa: PTH113 (`Path.is_file` raises before Python 3.14)


def is_folder(name: str | Path) -> bool:
    """Whether there is such a folder."""
    return os.path.isdir(name)  # noqa: PTH112


@contextmanager
def readable(
    asked: str, fix: str, *, found: str = "it cannot be read", error: type[InterpError] = RecordError
) -> Iterator[None]:
    """Raise any exception of the block as `error`: `found`, and then the message of the library."""
    try:
        yield
    except InterpError:
        raise
    except Exception as fault:
        raise error(asked=asked, found=f"{found} ({in_words(fault)})", fix=fix) from fault


def read_json(path: Path) -> Any:
    """The values of a JSON file in UTF-8. Raises `OSError`, `ValueError` or `RecursionError`; see `readable`."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file; raises what `read_json` does."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_rows(source: Path | bytes) -> "pyarrow.Table":
    """The table of one file, or of its bytes."""
    import pyarrow
    from pyarrow import parquet

    given = pyarrow.BufferReader(source) if isinstance(source, bytes) else source
    with parquet.ParquetFile(given, page_checksum_verification=True) as file:
        return file.read().combine_chunks()


def read_columns(path: Path) -> "dict[str, np.ndarray]":
    """The columns by name, without the metadata of pandas."""
    frame = read_rows(path).to_pandas(ignore_metadata=True)
    return {name: frame[name].to_numpy() for name in frame.columns}


def in_words(fault: Exception) -> str:
    """The message of an exception in one line."""
    from pydantic import ValidationError

    if isinstance(fault, ValidationError):
        first = fault.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        words = first["msg"].removeprefix("Value error, ")
        return f"{place}: {words[:1].lower()}{words[1:]}".removeprefix(": ")
    if isinstance(fault, RecursionError):
        return "its values lie too deep in one another"
    said = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    said = f"there is no {said}" if isinstance(fault, KeyError) else said
    return " ".join(said.split()) or type(fault).__name__
