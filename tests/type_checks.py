"""Annotations are checked while the tests run: shapes by jaxtyping, everything else by beartype alone.

jaxtyping's import hook decorates every function and dataclass of `interp` with `jaxtyping.jaxtyped`. That binds each
call's arguments and checks them twice, which took a third of all tests' time; only annotations with shapes need it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ForwardRef, get_args

import jaxtyping

_jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """From now on, modules of `interp` that are imported are decorated with `checked`."""
    jaxtyping.jaxtyped = checked


def checked(what: Any = None, *, typechecker: Callable) -> Any:
    """A function, or the constructor of a dataclass, whose annotations are checked at every call."""
    if what is None:
        return functools.partial(checked, typechecker=typechecker)
    if isinstance(what, type):
        if dataclasses.is_dataclass(what) and "__init__" in vars(what):
            what.__init__ = _checked_function(what.__init__, typechecker)
        return what
    return _checked_function(what, typechecker)


def _checked_function(function: Callable, typechecker: Callable) -> Callable:
    if any(map(_needs_jaxtyping, function.__annotations__.values())):
        return _jaxtyped(function, typechecker=typechecker)
    strict = typechecker(function)

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        return (function if jaxtyping.config.jaxtyping_disable else strict)(*args, **kwargs)

    return either


def _needs_jaxtyping(annotation: Any) -> bool:
    """Whether a shape is in it, or a name in quotes: jaxtyping passes over names that a type checker alone knows."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return isinstance(annotation, str | ForwardRef) or any(map(_needs_jaxtyping, get_args(annotation)))
