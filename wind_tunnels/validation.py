"""Refusal, in words, of settings that make no sense: before anything is drawn, let alone trained."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeGuard, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError


class Checked:
    """A dataclass that refuses what its fields may not be: declared here, unless a field is left out (None).

    Sizes are whole numbers, `least` or more, numbers `positive` or `fractions` below 1. Fields annotated as a `Literal`
    hold one of its words (an unknown one lists the nearest), those of `bool` one.
    """

    least: ClassVar[Mapping[str, int]] = {}
    positive: ClassVar[Sequence[str]] = ()
    fractions: ClassVar[Sequence[str]] = ()

    @property
    def asked(self) -> str:
        """What the fields are of."""
        raise NotImplementedError

    def refusal(self, found: str, fix: str) -> UsageError:
        """Of fields that make no sense together."""
        return UsageError(asked=self.asked, found=found, fix=fix)

    def __post_init__(self) -> None:
        left_out = {name for name, each in vars(self).items() if each is None and getattr(type(self), name) is None}
        given = {name: each for name, each in vars(self).items() if name not in left_out}
        check_sizes(self.asked, given, {name: bound for name, bound in self.least.items() if name in given})
        check_positive(self.asked, given, self.positive)
        for name in self.fractions:
            check_fraction(self.asked, name, given[name])
        hints = get_type_hints(type(self))
        for name, value in given.items():
            words = [hints[name], *get_args(hints[name])]
            known = [word for each in words if get_origin(each) is Literal for word in get_args(each)]
            if known and value not in known:
                raise UnknownName(name, str(value), known)
            if hints[name] is bool and type(value) is not bool:
                raise self.refusal(f"{name} = {value!r}", "It is True or False.")


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
