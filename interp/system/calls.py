"""Arguments of public calls: values of any library as Python's own, and messages for unknown or missing ones."""

from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Signature, signature
from typing import Any

from interp.errors import UnknownName, UsageError
from interp.system.habits import option_of
from interp.system.values import read


def refuse_unknown_keywords(keywords: Iterable[str], known: Collection[str], of: str) -> None:
    """Raise `UnknownName` for a keyword that the function `of` does not have."""
    for name in keywords:
        if name not in known:
            raise UnknownName(f"keyword of {of}", name, known, option_of(name))


def refuse_misfit(of: str, taken: Signature, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise `UsageError` for arguments that do not fit a signature."""
    if not any(each.kind is each.VAR_KEYWORD for each in taken.parameters.values()):
        refuse_unknown_keywords(keywords, taken.parameters, of)
    try:
        taken.bind(*given, **keywords)
    except TypeError as error:
        positional = [name for name, each in taken.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        named = [name for name in taken.parameters if name not in positional]
        fix = f"By position: {', '.join(positional)}{'; by name: ' if named else ''}{', '.join(named)}."
        raise UsageError(asked=of, found=str(error), fix=fix) from error


def answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a public function take numbers of any library, and reject wrong arguments with a message."""
    taken, of = signature(function), f"interp.{function.__name__}"

    @wraps(function)
    def called(*given: Any, **keywords: Any) -> Any:
        refuse_misfit(of, taken, given, keywords)
        bound = taken.bind(*given, **keywords)
        for name, value in bound.arguments.items():
            each = taken.parameters[name]
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                bound.arguments[name] = read(f"{of}({name})", each.annotation, value)
        return function(*bound.args, **bound.kwargs)

    return called


class AnsweringType(ABCMeta):
    """The type of classes whose constructors reject wrong arguments with a message."""

    def __call__(cls, *given: Any, **keywords: Any) -> Any:
        try:
            return super().__call__(*given, **keywords)
        except TypeError:
            refuse_misfit(cls.__name__, cls.__signature__, given, keywords)
            raise

    @property
    def __signature__(cls) -> Signature:
        """That of the constructor, for `help` and editors."""
        taken = signature(cls.__init__)
        return taken.replace(parameters=[*taken.parameters.values()][1:])
