"""The first position apart: which of a number and its twin without it is read first.

A head that matches content takes weight from a sink: it then lifts the mean of the keys that are not attended to and
broadens the row, and numbers of whole rows turn their sign. Where the sink is large the twin is the headline; where it
is small the number of whole rows is, and stands out only if its twin does so on the same side.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool, Float

from interp.findings import ALPHA, Control
from interp.statistics.units import mean_of_units

SINK_LEVEL = 0.1
"""Mean weight on the first position, beyond what a uniform row would give it, above which it is a sink.

A uniform row's share is taken off since short rows have few keys: in a tunnel the first row has one. Below a tenth,
what a sink hides or lends is a tenth of the row; a planted excess of a half turns the sign of every contrast.
"""

_MOST_NAMED = 12


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


def turned(gain: Float[np.ndarray, "unit entry"], twin: Float[np.ndarray, "unit entry"]) -> Bool[np.ndarray, " entry"]:
    """Where the mean gain and its twin without the first position have opposite signs."""
    return mean_of_units(gain) * mean_of_units(twin) < 0


def turned_heads_note(
    what: str, turns: Bool[np.ndarray, " entry"], p: Float[np.ndarray, " entry"], twin_p: Float[np.ndarray, " entry"],
    n_heads: int,
) -> tuple[str, ...]:  # fmt: skip
    """Names the heads (layer.head) where the sign turns and either of the two stands out; nothing where none does."""
    named = [f"{i // n_heads}.{i % n_heads}" for i in np.flatnonzero(turns & (np.fmin(p, twin_p) <= ALPHA))]
    if not named:
        return ()
    more = f" and {len(named) - _MOST_NAMED} more (by_head, column turns)" if len(named) > _MOST_NAMED else ""
    return (
        f"{what} changes its sign without the first position, and one of the two stands out, in {len(named)} heads: "
        f"{', '.join(named[:_MOST_NAMED])}{more}.",
    )
