"""What a call takes: arguments of any library as Python's own, and an answer to those that it does not take."""

from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from interp.errors import UnknownName, UsageError
from interp.system.habits import option_of


def fitted(asked: str, hint: Any, value: Any) -> Any:
    """A value as its annotation has it: numbers of any library as Python's, one text or number where several are taken.

    What is annotated otherwise (unions, arrays) stays as it is, for the function to judge. `UsageError` for a misfit.
    """
    from interp.system import plain_numbers  # numpy, which the command line does without until it runs

    kinds = [k for k in get_args(hint) if k is not NoneType] if get_origin(hint) in (Union, UnionType) else [hint]
    if (value is None and NoneType in get_args(hint)) or (len(kinds) > 1 and {*kinds} != {str, Path}):
        return value
    kind, origin, inner = kinds[0], get_origin(kinds[0]), get_args(kinds[0])[:1]
    if origin is Literal:
        if value not in get_args(kind):
            raise UnknownName(f"value of {asked}", str(value), map(str, get_args(kind)))
        return value
    if origin in (Sequence, Iterable):
        if inner == (int,):
            found = converted(asked, plain_numbers.whole_numbers, value, "Give whole numbers.")
            return (found,) if isinstance(found, int) else found
        return [value] if isinstance(value, str) and (inner == (str,) or str in get_args(*inner)) else value
    if kind in (int, float):
        take = plain_numbers.whole_number if kind is int else plain_numbers.number
        return converted(asked, take, value, f"Give a {'whole ' * (kind is int)}number.")
    if kinds == [str] and isinstance(value, int | Path) and not isinstance(value, bool):
        return str(value)
    is_ours = (
        isinstance(kind, type) and kind.__module__.startswith("interp.") and not getattr(kind, "_is_protocol", False)
    )
    wanted = Mapping if origin is Mapping else kind if is_ours or kinds in ([bool], [str]) else object
    wanted = (str, Path) if len(kinds) > 1 else wanted
    value = plain_numbers.plain(value) if kind is bool else value
    if not isinstance(value, wanted):
        name = getattr(kind, "__name__", "")
        fix = _MADE.get(name, f"Give a {name}.")
        raise UsageError(asked=f"{asked} = {value!r:.60}", found=f"it is a {type(value).__name__}", fix=fix)
    return value


_MADE = {
    "Model": "interp.load(name) gives a Model.",
    "Capture": "interp.collect(model, prompts, needs) gives a Capture.",
    "Task": "The `task` of a wind tunnel's model is one.",
    "Mapping": "Give a dictionary; of settings {'manifold': {'scaling': 'zscored'}}.",
    "bool": "Give True or False.",
    "str": "Give a text or a path.",
}
"""What gives an object of a kind."""


def converted(asked: str, convert: Callable[[Any], Any], value: Any, fix: str) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(asked=f"{asked} = {value!r:.60}", found=f"it does not fit: {error}", fix=fix) from error


def refuse_unknown_keywords(keywords: Iterable[str], known: Collection[str], of: str) -> None:
    """Raise `UnknownName`, which names the nearest, for a keyword that the function `of` does not take."""
    for name in keywords:
        if name not in known:
            raise UnknownName(f"keyword of {of}", name, known, option_of(name))


def refuse_misfit(of: str, taken: Signature, given: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a call that a signature does not take, in words."""
    if not any(each.kind is each.VAR_KEYWORD for each in taken.parameters.values()):
        refuse_unknown_keywords(keywords, taken.parameters, of)
    try:
        taken.bind(*given, **keywords)
    except TypeError as error:
        positional = [name for name, each in taken.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
        named = [name for name in taken.parameters if name not in positional]
        fix = f"By position: {', '.join(positional)}; by name: {', '.join(named)}."
        raise UsageError(asked=of, found=str(error), fix=fix) from error


def answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a public function take numbers and texts of any kind, and answer for arguments that it does not take."""
    taken, of = signature(function), f"interp.{function.__name__}"

    @wraps(function)
    def called(*given: Any, **keywords: Any) -> Any:
        refuse_misfit(of, taken, given, keywords)
        bound = taken.bind(*given, **keywords)
        for name, value in bound.arguments.items():
            each = taken.parameters[name]
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                bound.arguments[name] = fitted(f"{of}({name})", each.annotation, value)
        return function(*bound.args, **bound.kwargs)

    return called


class AnsweringType(ABCMeta):
    """The type of classes whose constructors answer for arguments that they do not take."""

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
