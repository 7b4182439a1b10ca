"""The first position apart: which of a number and its twin without it is read first.

A head that matches content takes weight from a sink: it then lifts the mean of the keys that are not attended to and
broadens the row, and numbers of whole rows turn their sign. Where the sink is large the twin is the headline; where it
is small the number of whole rows is, and stands out only if its twin does so on the same side.
"""

from collections.abc import Iterable, Mapping

from interp.findings import Control

SINK_LEVEL = 0.1
"""Mean weight on the first position above which it is a sink. A uniform row over ten keys gives as much; the planted
sink of .54 turns the sign of every contrast, and below a tenth what a sink hides or lends is a tenth of the row."""


def twin_of(name: str, suffix: str = "") -> str:
    """The name of a number without the first position; `suffix` is what the name ends in (`_all_positions`)."""
    return f"{name.removesuffix(suffix)}_no_first{suffix}"


def read_first(names: Iterable[str], sink_mass: float, suffix: str = "") -> tuple[str, ...]:
    """Of each number itself or its twin, the one that is read first."""
    return tuple(twin_of(name, suffix) if sink_mass > SINK_LEVEL else name for name in names)


def sink_controls(names: Iterable[str], sink_mass: float, suffix: str = "") -> Mapping[str, tuple[Control, ...]]:
    """For what is read first, the other of the two as its control.

    With a sink the number of whole rows decides nothing: it may have the wrong sign. Without one the twin has to agree.
    """
    if sink_mass > SINK_LEVEL:
        return {twin_of(name, suffix): (Control("with the first position", name, essential=False),) for name in names}
    return {name: (Control("without the first position", twin_of(name, suffix)),) for name in names}


def sink_note(sink_mass: float) -> str:
    """Which numbers are read first, and why."""
    side = "above" if sink_mass > SINK_LEVEL else "at most"
    which = (
        "numbers without the first position are read first" if sink_mass > SINK_LEVEL else "whole rows are read first"
    )
    return f"The first position holds {sink_mass:.2g} of the attention on average, {side} {SINK_LEVEL}: {which}."
