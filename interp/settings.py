"""Settings in words: `field=value` as `--set` takes it, read as the type of the field, and written again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError

LARGEST, LARGEST_SEED, MOST = 2**63 - 1, 2**32 - 1, 10_000_000
"""Whole numbers that every library takes, as a value, as a seed, and as a count of prompts, sequences or tokens."""


def refuse_number(asked: str, value: int, least: int, most: int) -> None:
    """Raise `UsageError` for a whole number out of its bounds."""
    if not least <= value <= most:
        found = "the number is too small" if value < least else "the number is too large"
        raise UsageError(asked=asked, found=found, fix=f"Give a whole number from {least:,} to {most:,}.")


def refuse_numbers(of: str, values: Mapping[str, Any]) -> None:
    """Raise `UsageError` for the first whole number among the fields of `of` that no library takes."""
    for field, value in values.items():
        if type(value) is int:
            least, most = (0, LARGEST_SEED) if field == "seed" else (-LARGEST, LARGEST)
            refuse_number(f"{of}.{field} = {value}", value, least, most)


def split_commas(words: str | Iterable[str] | None) -> list[str]:
    """The parts between commas, of one text or of several; empty parts are left out."""
    texts = [words] if isinstance(words, str) else words or ()
    return [part for text in texts for part in text.split(",") if part]


def split_setting(setting: str) -> tuple[str, str]:
    """What stands before the first `=`, and what behind it; `UsageError` where either is empty."""
    left, _, value = setting.partition("=")
    if not (left and value):
        raise _malformed(setting, "field=value", "V=20, or of a study --set settings=V=20,L=19")
    return left, value


def split_settings(settings: Iterable[str], probes: Sequence[str]) -> dict[str, dict[str, str]]:
    """`PROBE.field=value` (bare `field=value` with a single probe) as one mapping a probe."""
    found: dict[str, dict[str, str]] = {name: {} for name in probes}
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
        found[probe][field] = value
    return found


def _malformed(setting: str, form: str, example: str) -> UsageError:
    return UsageError(asked=f"the setting {setting!r}", found=f"it is not of the form {form}", fix=f"Write {example}.")


def read_fields(cls: Any, of: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values of some fields of a dataclass: texts are read as the type of the field, other values have to fit it.

    `of` is what messages call the owner. Raises `UnknownName` for a field that it has not, `UsageError` for a value
    that does not fit.
    """
    known = {f.name for f in fields(cls)}
    hints = get_type_hints(cls)
    for field in settings:
        if field not in known:
            raise UnknownName(f"field of {of}", field, known)
    values = {field: _read(f"{of}.{field}", value, hints[field]) for field, value in settings.items()}
    refuse_numbers(of, values)
    return values


def field_words(cls: Any) -> dict[str, tuple[str, ...]]:
    """Every field of a dataclass with the words it takes: those of a `Literal`, true and false, none.

    Nothing where it takes any number or text.
    """
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


def _read(where: str, value: Any, hint: Any) -> Any:
    """A value as its field's type."""
    from interp.system.plain_numbers import plain  # numpy, which the command line does without until it runs

    value = plain(value)
    if get_origin(hint) is tuple:
        entry = get_args(hint)[0]
        separator = ";" if get_origin(entry) is tuple else ","
        return tuple(_read(where, part, entry) for part in _entries(where, value, separator))
    kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    options = [option for kind in kinds for option in (get_args(kind) or (kind,))]
    options.sort(key=lambda option: option is not type(None))
    for option in options:
        try:
            return _fit(value, option)
        except (TypeError, ValueError, OverflowError):
            continue
    shown = ", ".join("none" if o is type(None) else str(getattr(o, "__name__", o)) for o in options)
    raise UsageError(asked=f"{where} = {value!r}", found="the value does not fit this field", fix=f"It takes: {shown}.")


def _fit(value: Any, option: Any) -> Any:
    """`value` as one alternative of a type (a class or a literal); `ValueError` where it does not fit."""
    if option is type(None) and value in (None, "none"):
        return None
    if option is bool and value in (True, False, "true", "false"):
        return value in (True, "true")
    if option is int and not isinstance(value, bool) and int(value) == float(value):
        return int(value)
    if option is float and not isinstance(value, bool):
        return float(value)
    if isinstance(option, type) and option not in (bool, int, float) and isinstance(value, option):
        return value
    if not isinstance(option, type) and value == option:
        return option
    raise ValueError(value)


def _entries(where: str, value: Any, separator: str) -> Sequence[Any]:
    """What a tuple holds: of a text its parts between commas, nothing of `none`, or the entries of a JSON list.

    A tuple of tuples has semicolons between these.
    """
    if isinstance(value, list | tuple | range):
        return value
    try:
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(separator)]
            return json.loads(value) if value.startswith("[") else [] if value == "none" else parts
    except (ValueError, RecursionError):
        pass  # a list that is not JSON is refused like any other value
    raise UsageError(
        asked=f"{where} = {value!r}",
        found="the value does not fit this field",
        fix="It takes values separated by commas, `none` for no value, or a JSON list.",
    )
