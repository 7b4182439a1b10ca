"""Numbers with and without the first position: which of the two is the headline.

Attention to content takes weight from a sink, which raises the weight of all other keys and the entropy of the row.
With a large sink, the variant without the first position is the headline; otherwise the number of whole rows is, and it
is significant only if the variant agrees.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from interp.findings import ALPHA, Control
from interp.statistics.quantities import Quantities, Quantity
from interp.table import Table

SINK_LEVEL = 0.1
"""Mean weight on the first position, beyond what a uniform row would give it, above which it is a sink.

A uniform row's share is subtracted, as short rows have few keys: in a tunnel the first row has one. Below a tenth a
sink changes at most a tenth of the row; a planted excess of a half reverses the sign of every contrast.
"""

_MOST_NAMED = 12


def without_first(name: str, suffix: str = "") -> str:
    """The name of a number without the first position; `suffix` is what the name ends in (`_all_positions`)."""
    return f"{name.removesuffix(suffix)}_no_first{suffix}"


def with_variants(declared: Mapping[str, Quantity], suffix: str = "") -> dict[str, Quantity]:
    """The declared numbers of whole rows, each with its variant without the first position as its control."""
    found = {}
    for name, quantity in declared.items():
        variant = without_first(name, suffix)
        without = "without the first position"
        bare = replace(quantity, meaning=f"{quantity.meaning}, {without}", is_headline=False, fact="")
        found |= {name: replace(quantity, controls=(Control(without, variant),)), variant: bare}
    return found


def read_first(declared: Quantities, sink: float, suffix: str = "") -> Quantities:
    """With a sink, the variant replaces the number, which becomes a control that is not essential.

    `sink` is the weight beyond a uniform row's. Without a sink the variant has to agree.
    """
    if sink <= SINK_LEVEL:
        return declared
    found = dict(declared)
    for name, number in declared.items():
        variant = without_first(name, suffix)
        if variant in [control.scalar for control in number.controls]:
            whole = (Control("with the first position", name, essential=False),)
            marks = {"is_headline": number.is_headline, "fact": number.fact, "controls": whole}
            found[name] = replace(number, is_headline=False, fact="", controls=())
            found[variant] = replace(declared[variant], **marks)
    return Quantities(found, declared.columns)


def sink_note(sink: float) -> str:
    """Which numbers are read first, and why."""
    side, verb = ("more", "leave it out") if sink > SINK_LEVEL else ("not more", "include it")
    return (
        f"The weight on the first position exceeds that of a uniform row by {sink:.2g}, {side} than {SINK_LEVEL}: the "
        f"main numbers {verb}."
    )


def turned_heads_note(what: str, heads: Table, pair: Iterable[str]) -> tuple[str, ...]:
    """Names the heads (layer.head) where the sign changes and either of the `pair` is significant; nothing if none."""
    least_p = np.fmin(*(heads[f"{name}_p"] for name in pair))
    mine = heads.where(heads["turns"] & (least_p <= ALPHA))
    named = [f"{layer}.{head}" for layer, head in zip(mine["layer"], mine["head"], strict=True)]
    if not named:
        return ()
    more = f" and {len(named) - _MOST_NAMED} more (by_head, column turns)" if len(named) > _MOST_NAMED else ""
    return (
        f"In {len(named)} heads, {what} changes sign without the first position, and one of the two is significant: "
        f"{', '.join(named[:_MOST_NAMED])}{more}.",
    )
