"""Validation of dataclass fields, with messages that say what to do."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError

Rule = tuple[Callable[[Any], bool], str]
"""The condition of a field, and its description after the name of the field."""

Conflict = tuple[bool, str, str]
"""Whether fields conflict, what was found, and what to do."""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def up_to(most: float) -> Rule:
    """Above 0 and at most this."""
    return lambda x: _is_number(x) and 0 < x <= most, f"is a number above 0 and at most {most:g}"


POSITIVE: Rule = (lambda x: _is_number(x) and 0 < x < math.inf, "is a number above 0")
FRACTION: Rule = (lambda x: _is_number(x) and 0 <= x < 1, "is a number from 0 to below 1")
POSITIVES: Rule = (lambda x: isinstance(x, tuple) and all(map(POSITIVE[0], x)), "is a list of numbers above 0")
DISTINCT: Rule = (lambda x: 0 < len(x) == len(set(x)), "names one or more, each once")


class Checked:
    """A dataclass whose fields are validated, except those left out (None).

    `rules` by field: a condition, or the least value of a whole number. `Literal` and `bool` fields follow their hints.
    """

    rules: ClassVar[Mapping[str, int | Rule]] = {}

    @property
    def asked(self) -> str:
        """What the fields describe, for messages."""
        raise NotImplementedError

    def conflicts(self) -> Iterator[Conflict]:
        """Combinations of fields that do not fit; the first that is true raises `UsageError`."""
        yield from ()

    def refusal(self, found: str, fix: str) -> UsageError:
        """The `UsageError` for invalid fields."""
        return UsageError(asked=self.asked, found=found, fix=fix)

    def __post_init__(self) -> None:
        left_out = {name for name, each in vars(self).items() if each is None and getattr(type(self), name) is None}
        given = {name: each for name, each in vars(self).items() if name not in left_out}
        for name, rule in self.rules.items():
            if isinstance(rule, int):
                rule = lambda x, least=rule: type(x) is int and x >= least, f"is a whole number, {rule} or more"
            is_right, words = rule
            if name in given and not is_right(given[name]):
                raise self.refusal(f"{name} = {given[name]!r}", f"{name} {words}.")
        hints = get_type_hints(type(self))
        for name, value in given.items():
            words = [hints[name], *get_args(hints[name])]
            known = [word for each in words if get_origin(each) is Literal for word in get_args(each)]
            if known and value not in known:
                raise UnknownName(name, str(value), known)
            if hints[name] is bool and type(value) is not bool:
                raise self.refusal(f"{name} = {value!r}", "It is True or False.")
        for is_so, found, fix in self.conflicts():
            if is_so:
                raise self.refusal(found, fix)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, n))
