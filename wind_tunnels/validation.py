"""Refusal, in words, of fields that make no sense: before anything is drawn, let alone trained."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from interp.errors import UnknownName, UsageError

Rule = tuple[Callable[[Any], bool], str]
"""What a field has to be, and the words for it behind its name."""


Conflict = tuple[bool, str, str]
"""Whether fields make no sense together; what is found then, and what to do."""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def up_to(most: float) -> Rule:
    """Above 0, and no more than this."""
    return lambda x: _is_number(x) and 0 < x <= most, f"is a number above 0 and at most {most:g}"


def _at_least(bound: int) -> Rule:
    return lambda x: type(x) is int and x >= bound, f"is a whole number, {bound} or more"


POSITIVE: Rule = (lambda x: _is_number(x) and 0 < x < math.inf, "is a number above 0")
FRACTION: Rule = (lambda x: _is_number(x) and 0 <= x < 1, "is a number from 0 to below 1")
POSITIVES: Rule = (lambda x: isinstance(x, tuple) and all(map(POSITIVE[0], x)), "is a list of numbers above 0")
DISTINCT: Rule = (lambda x: 0 < len(x) == len(set(x)), "names one or more, each once")


class Checked:
    """A dataclass that refuses what its fields may not be: declared here, unless a field is left out (None).

    `rules` are by the name of a field: a number is the least size, which is a whole number. Fields annotated as a
    `Literal` hold one of its words (an unknown one lists the nearest), those of `bool` one.
    """

    rules: ClassVar[Mapping[str, int | Rule]] = {}

    @property
    def asked(self) -> str:
        """What the fields are of."""
        raise NotImplementedError

    def conflicts(self) -> Iterator[Conflict]:
        """Combinations of fields that do not fit together; the first that holds is a `UsageError`."""
        yield from ()

    def refusal(self, found: str, fix: str) -> UsageError:
        """Of fields that make no sense together."""
        return UsageError(asked=self.asked, found=found, fix=fix)

    def __post_init__(self) -> None:
        left_out = {name for name, each in vars(self).items() if each is None and getattr(type(self), name) is None}
        given = {name: each for name, each in vars(self).items() if name not in left_out}
        for name, rule in self.rules.items():
            is_right, words = _at_least(rule) if isinstance(rule, int) else rule
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
