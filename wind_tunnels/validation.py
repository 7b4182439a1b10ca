"""Refusal, in words, of settings that make no sense: before anything is drawn, let alone trained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Literal, TypeGuard, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_sizes(asked: str, given: Mapping[str, object], least: Mapping[str, int]) -> None:
    """Every size named in `least` is a whole number and not below its bound."""
    for name, bound in least.items():
        size = given[name]
        if type(size) is not int or size < bound:
            raise UsageError(asked=asked, found=f"{name} = {size!r}", fix=f"{name} is a whole number, {bound} or more.")


def check_positive(asked: str, given: Mapping[str, object], names: Sequence[str]) -> None:
    """Every one of these is a finite number above 0."""
    for name in names:
        value = given[name]
        if not (_is_number(value) and 0 < value < math.inf):
            raise UsageError(asked=asked, found=f"{name} = {value!r}", fix=f"{name} is a number above 0.")


def check_fraction(asked: str, name: str, value: object) -> None:
    """It is a number from 0 to below 1."""
    if not (_is_number(value) and 0 <= value < 1):
        raise UsageError(asked=asked, found=f"{name} = {value!r}", fix="It is a number from 0 to below 1.")


def check_words(asked: str, given: "DataclassInstance") -> None:
    """Fields annotated as a `Literal` hold one of its words (an unknown one lists the nearest), those of `bool` one."""
    hints = get_type_hints(type(given))
    for name in (field.name for field in fields(given)):
        hint, value = hints[name], getattr(given, name)
        words = [hint, *get_args(hint)]
        known = [word for each in words if get_origin(each) is Literal for word in get_args(each)]
        if known and value not in known and not (value is None and type(None) in words):
            raise UnknownName(name, str(value), known)
        if hint is bool and type(value) is not bool:
            raise UsageError(asked=asked, found=f"{name} = {value!r}", fix="It is True or False.")


def check_distinct(asked: str, name: str, values: Sequence[object]) -> None:
    """There is at least one, and none is there twice."""
    if not values or len(set(values)) < len(values):
        raise UsageError(
            asked=f"{asked}.{name} = {','.join(map(str, values))}",
            found="there is none, or one is there twice",
            fix="Name each once.",
        )


def is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, n))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
