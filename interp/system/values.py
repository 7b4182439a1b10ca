"""Conversion of values to their annotated type: options, fields of probes and studies, arguments of functions."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

from interp.errors import UnknownName, UsageError
from interp.system.plain_numbers import path, plain

_WORDS: Mapping[Any, str] = {
    NoneType: "none", bool: "True or False", int: "a whole number", float: "a number", str: "a text", Path: "a path",
}  # fmt: skip
_MAKERS = {
    "Model": "interp.load(name) gives a Model.",
    "Capture": "interp.collect(model, prompts, needs) gives a Capture.",
    "Task": "The `task` of a wind tunnel's model is one.",
    "Mapping": "Give a dictionary; of settings {'manifold': {'scaling': 'zscored'}}.",
    "ndarray": "Give numbers in lists of equal length, or an array.",
}
"""How to make the objects that an annotation requires."""


def read(asked: str, hint: Any, value: Any, *, from_words: bool = True) -> Any:
    """A value converted to its annotation.

    A text is parsed as the type: `none`, `true`, parts between commas (semicolons between tuples) or a JSON list. One
    text or number may stand for a list of one; in a path, `~` is the user's folder. Values with other annotations
    (unions of objects) are unchanged. Without `from_words` texts are not parsed, and an array becomes one of real
    numbers. Raises `UsageError` if the value does not fit, `UnknownName` if it is none of the words of a `Literal`.
    """
    kinds = alternatives(hint)
    if Path not in kinds:
        refuse_half_character(asked, value)
    elif isinstance(value, str | Path) and str(value).startswith("~") and {*kinds} <= {str, Path, NoneType}:
        value = path(value)
    is_plain = all(kind in _WORDS or _is_word(kind) or get_origin(kind) is tuple for kind in kinds)
    is_one = len({*kinds} - {NoneType}) == 1
    is_of_kind = type(value) in kinds and (from_words or type(value).__name__ != "ndarray")
    is_as_it_should_be = is_of_kind or (isinstance(value, Path) and Path in kinds)
    if isinstance(hint, str | ForwardRef) or is_as_it_should_be or not (is_plain or is_one):
        return value
    for kind in kinds:
        try:
            return _fit(asked, kind, value, from_words)
        except (TypeError, ValueError, OverflowError):
            continue
    named = [kind for kind in kinds if kind is not NoneType]
    if all(map(_is_word, named)):
        raise UnknownName(f"value of {asked}", str(value), map(str, named))
    shown = " or ".join(_shown(kind) + " with commas" * (from_words and get_origin(kind) is tuple) for kind in named)
    maker = _MAKERS.get(getattr(named[0], "__name__", ""), f"Give {shown}.")
    raise UsageError(asked=f"{asked} = {value!r:.60}", found="the value does not fit", fix=maker)


def half_character(text: str) -> str:
    """A description of half a surrogate pair in a text, which UTF-8 does not allow, or an empty text."""
    half = re.search(r"[\ud800-\udfff]", text)
    return f"half a surrogate pair at character {half.start()}, which is no character" if half else ""


def refuse_half_character(asked: str, value: Any) -> None:
    """Raise `UsageError` for a text or path that is not UTF-8, as records are."""
    if isinstance(value, str | Path) and (found := half_character(str(value))):
        fix = "Write UTF-8; rename a file of such a name."
        raise UsageError(asked=f"{asked} = {value!r:.60}", found=f"it holds {found}", fix=fix)


@cache
def alternatives(hint: Any) -> list[Any]:
    """The types and the words of a `Literal` that an annotation allows, `None` first."""
    origin = get_origin(hint)
    if origin is Literal:
        return [*get_args(hint)]
    if origin not in (Union, UnionType):
        return [hint]
    found = [kind for part in get_args(hint) for kind in alternatives(part)]
    return sorted(found, key=lambda kind: kind is not NoneType)


def _is_word(kind: Any) -> bool:
    """Whether it is a value of a `Literal`, not a type."""
    return isinstance(kind, str | int)


def _shown(kind: Any) -> str:
    """A type or a word in a message."""
    if get_origin(kind) is tuple:
        return _WORDS.get(get_args(kind)[0], "a value").removeprefix("a ") + "s"
    return str(kind) if _is_word(kind) else _WORDS.get(kind, "a value")


def _fit(asked: str, kind: Any, value: Any, from_words: bool) -> Any:
    """`value` converted to one alternative of a type; raises `TypeError` or `ValueError` if it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)[:1]
    if not from_words:
        if isinstance(value, str | bytes) and (origin is tuple or kind in (bool, int, float)):
            raise ValueError(value)
        if getattr(kind, "__name__", "") == "ndarray":
            return _array(value)
    if origin is tuple:
        parts = _entries(plain(value), ";" if get_origin(inner[0]) is tuple else ",")
        return tuple(read(asked, inner[0], part, from_words=from_words) for part in parts)
    if origin in (Sequence, Iterable):
        if inner == (int,):
            value = plain(value)
            return tuple(read(asked, int, each) for each in (value if isinstance(value, Iterable) else [value]))
        return [value] if isinstance(value, str) and str in alternatives(*inner) else value
    if kind in (bool, int, float) or _is_word(kind):
        value = plain(value)
    if kind is NoneType and (value is None or (isinstance(value, str) and value == "none")):
        return None
    if kind is bool and value in (True, False, "true", "false", "True", "False"):
        return value in (True, "true", "True")
    if kind is int and not isinstance(value, bool) and (isinstance(value, int) or int(value) == float(value)):
        return int(value)
    if kind is float and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, str | int | Path if from_words else str) and not isinstance(value, bool):
        return str(value)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind in _WORDS or _is_word(kind):
        if value == kind:
            return kind
    elif getattr(kind, "__name__", "") not in _MAKERS or isinstance(value, origin or kind):
        return value
    raise ValueError(value)


def _array(value: Any) -> Any:
    """An array of real numbers; one of numpy is unchanged."""
    import numpy as np  # late, for a fast start of the command line

    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value
    value = plain(value)
    if value is None or np.asarray(value).dtype.kind not in "iufO":
        raise TypeError("its entries are no real numbers")
    return np.array(value, dtype=np.float64)


def _entries(value: Any, separator: str) -> Sequence[Any]:
    """The entries of a tuple: parts of a text, none of `none`, the entries of a JSON list, or the single value."""
    if isinstance(value, str):
        if value.startswith("["):
            return json.loads(value)
        return [] if value == "none" else [part.strip() for part in value.split(separator)]
    return list(value) if isinstance(value, Iterable) else [value]
