"""Files that somebody else may have written: whatever is wrong with one becomes one error of ours, in words.

A spoilt file makes a library raise any exception at all, from `zlib.error` to `RecursionError`. They are caught here
alone, around what reads and checks a file and nothing more, and each stays the cause of what is told.
"""

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interp.errors import InterpError, RecordError


@contextmanager
def readable(
    asked: str, fix: str, *, found: str = "it cannot be read", error: type[InterpError] = RecordError
) -> Iterator[None]:
    """Whatever goes wrong in the block is raised as `error`: `found`, and behind it what the library says."""
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


def in_words(fault: Exception) -> str:
    """What is wrong with a file, in one line."""
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
