"""Annotations are checked while the tests run: shapes by jaxtyping, everything else by beartype alone.

jaxtyping's import hook decorates every function and dataclass of `interp` with `jaxtyping.jaxtyped`. That binds each
call's arguments and checks them twice, which took a third of all tests' time; only annotations with shapes need it.
In each test, the first `CALLS` calls of a function are checked: inner loops call one thousands of times, with the same
shapes. With `CHECK_EVERY_CALL` in the environment, as in `make test-all`, every call is checked.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any, ForwardRef, get_args

import jaxtyping

CALLS = math.inf if os.environ.get("CHECK_EVERY_CALL") else 10

_jaxtyped = jaxtyping.jaxtyped
_test = 0
_calls: dict[tuple[str, str], list[int]] = {}
"""Of each function, by its name, as inner ones are made anew: in which test it was called last, and how often."""


def install() -> None:
    """From now on, modules of `interp` that are imported are decorated with `checked`."""
    jaxtyping.jaxtyped = checked


def next_test() -> None:
    """From now on, the first calls are checked again."""
    global _test
    _test += 1


def checked(what: Any = None, *, typechecker: Callable) -> Any:
    """A function, or the constructor of a dataclass, whose annotations are checked at every call."""
    if what is None:
        return functools.partial(checked, typechecker=typechecker)
    if isinstance(what, type):
        init = vars(what).get("__init__")  # transformers wraps that of a configuration, which takes more than it says
        if dataclasses.is_dataclass(what) and init is not None and not hasattr(init, "__wrapped__"):
            what.__init__ = _checked_function(init, typechecker)
        return what
    return _checked_function(what, typechecker)


def _checked_function(function: Callable, typechecker: Callable) -> Callable:
    strict: Callable | None = None  # made when it is first called, which takes a millisecond
    calls = _calls.setdefault((function.__module__, function.__qualname__), [-1, 0])

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        nonlocal strict
        if calls[0] != _test:
            calls[:] = [_test, 0]
        calls[1] += 1
        if calls[1] > CALLS or jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if strict is None:
            strict = _strict(function, typechecker)
        return strict(*args, **kwargs)

    return either


def _strict(function: Callable, typechecker: Callable) -> Callable:
    if any(map(_needs_jaxtyping, function.__annotations__.values())):
        return _jaxtyped(function, typechecker=typechecker)
    return typechecker(function)


def _needs_jaxtyping(annotation: Any) -> bool:
    """Whether a shape is in it, or a name in quotes: jaxtyping passes over names that a type checker alone knows."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return isinstance(annotation, str | ForwardRef) or any(map(_needs_jaxtyping, get_args(annotation)))
