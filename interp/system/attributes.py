"""An attribute that an object has for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOTHING = object()


@contextmanager
def held(part: Any, name: str, value: object) -> Iterator[None]:
    """An object's own attribute until the block is left; what it was before comes back, or nothing of its own."""
    before = vars(part).get(name, _NOTHING)
    setattr(part, name, value)
    try:
        yield
    finally:
        if before is _NOTHING:
            delattr(part, name)
        else:
            setattr(part, name, before)
