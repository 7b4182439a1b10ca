"""Checks of a probe's fields: unknown words, and numbers that are too small."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

from interp.errors import UsageError
from interp.probe import Question


def refuse_unknown(probe: Question) -> None:
    """Raise `UsageError` for the first `Literal` field (alone or in a tuple) with an unknown value, or none."""
    hints = get_type_hints(type(probe))
    for name in (field.name for field in fields(probe)):
        hint, value = hints[name], getattr(probe, name)
        if get_origin(hint) is tuple:
            hint = get_args(hint)[0]
        else:
            value = (value,)
        if get_origin(hint) is Literal and not (value and set(value) <= set(get_args(hint))):
            raise UsageError(
                asked=f"{probe.name}.{name} = {getattr(probe, name)!r}",
                found="it is not one of the values of this field",
                fix=f"Choose among {', '.join(map(str, get_args(hint)))}.",
            )


def refuse_too_few(probe: Question, least: Mapping[str, int], found: str | Mapping[str, str]) -> None:
    """Raise `UsageError` for the first field below its least value; None is no value.

    `found` says why, in one sentence for all fields or one for each.
    """
    for name, smallest in least.items():
        value = getattr(probe, name)
        if value is not None and value < smallest:
            raise UsageError(
                asked=f"{probe.name}.{name} = {value}",
                found=found if isinstance(found, str) else found[name],
                fix=f"Choose {smallest} or more.",
            )
