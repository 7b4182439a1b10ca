"""Settings of a tunnel as written on a command line: `field=value`."""

import json
from collections.abc import Iterable
from typing import Any

from interp.settings import by_name, split_setting


def read_settings(words: Iterable[str] | None) -> dict[str, Any]:
    """The settings by field, each read by `read_value`; `UsageError` for a repeated field or other words."""
    return by_name((name, read_value(value)) for name, value in map(split_setting, words or ()))


def read_value(words: str) -> Any:
    """A value read as JSON (or True, False, None), or else as text."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(words, words))
    except (ValueError, RecursionError):
        return words
