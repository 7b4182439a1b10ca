"""Refusal, in words, of sizes that make no sense: before anything is drawn, let alone trained."""

import math
from collections.abc import Mapping, Sequence

from interp.errors import UnknownName, UsageError


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
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UsageError(asked=asked, found=f"{name} = {value!r}", fix=f"{name} is a number above 0.")


def check_choice(given: Mapping[str, object], choices: Mapping[str, Sequence[str]]) -> None:
    """Every one of these names is among the known ones; an unknown one lists the nearest."""
    for name, known in choices.items():
        if given[name] not in known:
            raise UnknownName(name, str(given[name]), known)
