"""Checks of a probe's fields: unknown words, numbers that are too small, and layers that the model lacks."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

from interp.errors import UsageError
from interp.probe import Question

from .cloud import n_places

TOO_FEW = "too few for the probe to compute with"


def check_fields(
    probe: Question, least: Mapping[str, int], n_layers: int | None = None, layer: str = "", site: str = ""
) -> None:
    """Raise `UsageError` for the first field with a value that cannot be used.

    That is a `Literal` field (alone or in a tuple) with an unknown word or none, a number below its `least` (None is no
    number), or the field named `layer` if the `site` of a model with `n_layers` (None: not known yet) has none such.
    """
    hints, n = get_type_hints(type(probe)), 0 if n_layers is None else n_places(site, n_layers)
    for name in (field.name for field in fields(probe)):
        hint, value = hints[name], getattr(probe, name)
        if get_origin(hint) is tuple:
            hint, words = get_args(hint)[0], value
        else:
            words = (value,)
        if get_origin(hint) is Literal and not (words and set(words) <= set(get_args(hint))):
            found, fix = "it is not one of the values of this field", ", ".join(map(str, get_args(hint)))
            raise refused(probe, name, found, f"Choose among {fix}.")
        if name in least and value is not None and value < least[name]:
            raise refused(probe, name, TOO_FEW, f"Choose {least[name]} or more.")
        if name == layer and n and value not in range(-n, n):
            found = f"the model has {'depths' if site == 'resid' else 'layers'} 0 to {n - 1}"
            raise refused(probe, name, found, f"Choose one of them, or -1 to -{n} counted from the last.")


def refused(probe: Question, field: str, found: str, fix: str) -> UsageError:
    """The error for the value of one field."""
    return UsageError(asked=f"{probe.name}.{field} = {getattr(probe, field)!r}", found=found, fix=fix)
