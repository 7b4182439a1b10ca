"""Settings of a tunnel as they are written on a command line: `field=value`."""

import json
from collections.abc import Iterable
from typing import Any

from interp.errors import UsageError


def read_settings(words: Iterable[str] | None) -> dict[str, Any]:
    """Every `field=value` with its value as `read_value` takes it; none of None. `UsageError` for anything else."""
    return dict(map(_read_setting, words or ()))


def _read_setting(words: str) -> tuple[str, Any]:
    name, equals, value = words.partition("=")
    if not (name and equals and value):
        raise UsageError(
            asked=f"the setting {words!r}",
            found="it is not of the form field=value",
            fix="Write V=20, or of a study --set settings=V=20,L=19.",
        )
    return name, read_value(value)


def read_value(words: str) -> Any:
    """A value read as JSON where it is that (numbers, true, null) and as a text otherwise."""
    try:
        return json.loads(words)
    except json.JSONDecodeError:
        return words
