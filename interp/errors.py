"""Errors in three parts: what was asked, what was found, what to do.

Every error a user can meet is one of these; any other exception that reaches the terminal is a bug in interp.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from interp.formatting import brief, html_table, quoting, text_table

Key = TypeVar("Key")
Held = TypeVar("Held")


class InterpError(Exception):
    """An error that says what was `asked`, what was `found`, and what to do (`fix`).

    Control characters are escaped; of a long value 200 characters are quoted.

    >>> try:
    ...     interp.load("pythia-411m")
    ... except interp.InterpError as error:
    ...     print(error.fix)
    Did you mean ...
    """

    exit_code = 1

    def __init__(self, *, asked: str, found: str, fix: str) -> None:
        self.asked, self.found, self.fix = map(quoting, (asked, found, fix))
        super().__init__(self.asked, self.found, self.fix)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, so that an error of a subprocess arrives unchanged."""
        return type(self).__new__, (type(self), *self.args), vars(self)

    def __str__(self) -> str:
        return f"{self.asked}: {self.found}\n  {self.fix}"


class UsageError(InterpError):
    """A call that does not fit; nothing was run."""

    exit_code = 2


class UnknownName(UsageError, KeyError):
    """An unknown name; the message lists the nearest names (or a `hint`), and all of them unless they are many."""

    def __init__(self, kind: str, name: object, known: Iterable[str], hint: str = "") -> None:
        name, names = str(name), sorted(known)
        begun = [each for each in names if name and each.startswith(name)]
        near = begun[:3] or difflib.get_close_matches(name[:200], names, n=3, cutoff=0.5)
        fix = f"{hint} " if hint else f"Did you mean {' or '.join(near)}? " if near else ""
        is_long = len(names) > 30 and kind in ("model", "probe", "prompt", "tunnel")
        fix += f"`interp list {kind}s` shows all {len(names)}." if is_long else f"Known: {', '.join(names)}."
        super().__init__(asked=f"{kind} {name!r}", found=f"there is no {kind} of this name", fix=fix)
        self.name, self.near = name, near


def named(kind: str, name: Any, known: Mapping[Any, Held]) -> Held:
    """The value under this name; `UnknownName` if there is none."""
    if name not in known:
        raise UnknownName(kind, name, map(str, known))
    return known[name]


class UnknownAttribute(UnknownName, AttributeError):  # pyrefly: ignore[inconsistent-inheritance]
    """An unknown attribute: a habit from another library, or a typing error."""


class Answering:
    """Prints as one line; for an unknown attribute the error names the nearest and says `_habits`."""

    _habits: ClassVar[str] = ""
    __repr__ = brief

    if not TYPE_CHECKING:  # a checker goes on to refuse attributes that are not declared

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or hasattr(type(self), name):  # a property of its own failed
                return object.__getattribute__(self, name)
            known = {*dir(type(self)), *vars(self)}
            public = {each for each in known if not each.startswith("_")}
            raise UnknownAttribute(f"attribute of {type(self).__name__}", name, public, self._habits)


class Holding(Answering, Mapping[Key, Held]):
    """A mapping over the field `_held`, whose values messages call `_kind`; prints as `_table`."""

    _held: ClassVar[str]
    _kind: ClassVar[str]

    def _table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]], str]:
        """Title, head, rows, and what else there is."""
        raise NotImplementedError

    def __getitem__(self, name: Any, /) -> Held:
        return named(self._kind, name, getattr(self, self._held))

    def __iter__(self) -> Iterator[Key]:
        return iter(getattr(self, self._held))

    def __len__(self) -> int:
        return len(getattr(self, self._held))

    def __repr__(self) -> str:
        return text_table(*self._table())

    def _repr_html_(self) -> str:
        return html_table(*self._table())


class PromptError(UsageError):
    """A prompt set that cannot be used."""


class ModelError(InterpError):
    """A model that cannot be loaded or read."""


class RecordError(InterpError):
    """A run record that cannot be written, read or trusted."""


@contextmanager
def optional_part(extra: str, asked: str) -> Iterator[None]:
    """Imports inside this block raise `UsageError` for a missing package, with the extra that installs it."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            asked=asked,
            found=f"the package {error.name or extra} is not installed",
            fix=f"pip install 'interp[{extra}]'",
        ) from error
