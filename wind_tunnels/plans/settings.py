"""Settings of a tunnel as they are written on a command line: `field=value`."""

import json
from collections.abc import Iterable
from typing import Any

from interp.settings import by_name, split_setting


def read_settings(words: Iterable[str] | None) -> dict[str, Any]:
    """Every `field=value` once, its value as `read_value` takes it; none of None. `UsageError` for anything else."""
    return by_name((name, read_value(value)) for name, value in map(split_setting, words or ()))


def read_value(words: str) -> Any:
    """A value read as JSON where it is that (numbers, true, null), as Python writes these too, and else as a text."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(words, words))
    except (ValueError, RecursionError):
        return words
