"""Settings as text: `field=value` of `--set`, converted to the type of the field and back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError
from interp.system.values import alternatives, read, refuse_half_character

LARGEST, LARGEST_SEED, MOST = 2**63 - 1, 2**32 - 1, 10_000_000
"""Whole numbers that every library takes, as a value, as a seed, and as a count of prompts, sequences or tokens."""


def refuse_number(asked: str, value: int | float, least: int, most: int) -> None:
    """Raise `UsageError` for a number outside these bounds."""
    if not least <= value <= most:
        kind = "a number" if isinstance(value, float) else "a whole number"
        found = "the number is too small" if value < least else "the number is too large"
        raise UsageError(asked=asked, found=found, fix=f"Give {kind} from {least:,} to {most:,}.")


def refuse_values(of: str, values: Mapping[str, Any]) -> None:
    """Raise `UsageError` for the first value that is too large for the libraries, or not UTF-8."""
    for field, value in values.items():
        refuse_half_character(f"{of}.{field}", value)
        if type(value) is int:
            least, most = (0, LARGEST_SEED) if field == "seed" else (-LARGEST, LARGEST)
            refuse_number(f"{of}.{field} = {value}", value, least, most)


def split_commas(words: str | Iterable[str] | None) -> list[str]:
    """The parts between commas, of one text or of several, without white space around them; empty ones are left out."""
    texts = [words] if isinstance(words, str) else words or ()
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def split_setting(setting: str) -> tuple[str, str]:
    """The parts before and after the first `=`; `UsageError` if either is empty."""
    left, _, value = setting.partition("=")
    if not (left and value):
        raise _malformed(setting, "field=value", "V=20, or of a study --set settings=V=20,L=19")
    return left, value


def by_name(settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The settings as a mapping; `UsageError` for a repeated name."""
    found: dict[str, Any] = {}
    for name, value in settings:
        if name in found:
            both = f"it is given more than once: {found[name]} and {value}"
            raise UsageError(asked=f"the setting {name}", found=both, fix="Give it once.")
        found[name] = value
    return found


def split_settings(settings: Iterable[str], probes: Sequence[str]) -> dict[str, dict[str, str]]:
    """`PROBE.field=value` (bare `field=value` with a single probe) as one mapping a probe."""
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in probes}
    for setting in settings:
        left, _, value = setting.partition("=")
        probe, dot, field = left.partition(".")
        if not dot and len(probes) == 1:
            probe, field = probes[0], left
        if not (field and value):
            raise _malformed(setting, "PROBE.field=value", "--set manifold.scaling=zscored")
        if probe not in found:
            raise UsageError(
                asked=f"the setting {setting!r}",
                found=f"the probe {probe!r} is not part of this run ({', '.join(probes)})",
                fix=f"Add --probe {probe}, or drop the setting.",
            )
        found[probe].append((field, value))
    return {name: by_name(given) for name, given in found.items()}


def _malformed(setting: str, form: str, example: str) -> UsageError:
    return UsageError(asked=f"the setting {setting!r}", found=f"it is not of the form {form}", fix=f"Write {example}.")


_hints = cache(get_type_hints)


def read_fields(cls: Any, of: str, settings: Mapping[str, Any], *, from_words: bool = True) -> dict[str, Any]:
    """Values for fields of a dataclass: texts are converted to the type of the field, other values have to fit it.

    `of` is the owner's name in messages; `from_words` as in `read`. Raises `UnknownName` for an unknown field,
    `UsageError` for a value that does not fit.
    """
    known = {f.name for f in fields(cls)}
    hints = _hints(cls)
    for field in settings:
        if field not in known:
            raise UnknownName(f"field of {of}", field, known)
    values = {}
    for field, value in settings.items():
        is_none = from_words and isinstance(value, str) and value == "none" and type(None) in alternatives(hints[field])
        values[field] = None if is_none else read(f"{of}.{field}", hints[field], value, from_words=from_words)
    refuse_values(of, values)
    return values


def field_words(cls: Any) -> dict[str, tuple[str, ...]]:
    """The words that each field of a dataclass takes: of a `Literal`, true and false, none; empty if it takes any."""
    hints = get_type_hints(cls)
    return {f.name: _words(hints[f.name]) for f in fields(cls)}


def _words(hint: Any) -> tuple[str, ...]:
    if hint is bool or hint is type(None):
        return ("true", "false") if hint is bool else ("none",)
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    parts = get_args(hint)[:1] if get_origin(hint) is tuple else get_args(hint)
    return tuple(word for part in parts for word in _words(part))


def write_settings(settings: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Settings by probe as `split_settings` takes them."""
    return [f"{probe}.{field}={write_value(v)}" for probe, values in settings.items() for field, v in values.items()]


def write_value(value: Any) -> str:
    """A value as `--set` reads it: lists between commas where their entries have none, else as JSON."""
    if not isinstance(value, list | tuple):
        return json.dumps(value) if isinstance(value, bool) else "none" if value is None else str(value)
    plain = ",".join(map(str, value))
    is_plain = plain != "none" and not plain.startswith("[") and plain.count(",") == len(value) - 1
    return plain if is_plain and all(map(str, value)) else json.dumps(value) if value else "none"
