"""Refusing fields of a probe whose numbers are too small for what is made of them."""

from collections.abc import Mapping

from interp.errors import UsageError
from interp.probe import Probe


def refuse_too_few(probe: Probe, least: Mapping[str, int], found: str | Mapping[str, str]) -> None:
    """Raise `UsageError` for the first field below its least value; a field that is None was not asked for.

    `found` says what is wrong with so few, in one sentence for all fields or one for each.
    """
    for name, smallest in least.items():
        value = getattr(probe, name)
        if value is not None and value < smallest:
            raise UsageError(
                asked=f"{probe.name}.{name} = {value}",
                found=found if isinstance(found, str) else found[name],
                fix=f"Choose {smallest} or more.",
            )
