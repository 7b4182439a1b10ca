"""The first position apart: which of a number and its twin without it is read first.

A head that matches content takes weight from a sink: it then lifts the mean of the keys that are not attended to and
broadens the row, and numbers of whole rows turn their sign. Where the sink is large the twin is the headline; where it
is small the number of whole rows is, and stands out only if its twin does so on the same side.
"""

from collections.abc import Iterable, Mapping

from interp.findings import Control

SINK_LEVEL = 0.1
"""Mean weight on the first position, beyond what a uniform row would give it, above which it is a sink.

A uniform row's share is taken off since short rows have few keys: in a tunnel the first row has one. Below a tenth,
what a sink hides or lends is a tenth of the row; a planted excess of a half turns the sign of every contrast.
"""


def twin_of(name: str, suffix: str = "") -> str:
    """The name of a number without the first position; `suffix` is what the name ends in (`_all_positions`)."""
    return f"{name.removesuffix(suffix)}_no_first{suffix}"


def read_first(names: Iterable[str], sink: float, suffix: str = "") -> tuple[str, ...]:
    """Of each number itself or its twin, the one that is read first; `sink` is the weight beyond a uniform row's."""
    return tuple(twin_of(name, suffix) if sink > SINK_LEVEL else name for name in names)


def sink_controls(names: Iterable[str], sink: float, suffix: str = "") -> Mapping[str, tuple[Control, ...]]:
    """For what is read first, the other of the two as its control.

    With a sink the number of whole rows decides nothing: it may have the wrong sign. Without one the twin has to agree.
    """
    if sink > SINK_LEVEL:
        return {twin_of(name, suffix): (Control("with the first position", name, essential=False),) for name in names}
    return {name: (Control("without the first position", twin_of(name, suffix)),) for name in names}


def sink_note(sink: float) -> str:
    """Which numbers are read first, and why."""
    side, which = ("above", "numbers without the first position") if sink > SINK_LEVEL else ("not above", "whole rows")
    return (
        f"Attention on the first position is {sink:.2g} beyond that of a uniform row, {side} {SINK_LEVEL}: {which} are "
        "read first."
    )
