"""What has to be said beside the numbers of the causal probe."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from interp.probe import Readout
from interp.table import Table

from .edits import REMOVED, Name
from .effects import Effects

ALIKE = 0.2
"""Mean squared cosine between controls above which a note says how alike they are."""

_MATCHED = {
    "refit": "axes fitted as it was, to {targets} permuted between prompts, at a dose of {dose:.2g} on average for a "
    "change of equal size at the scored positions",
    "direction": "single random directions tilted until they take out as much variance",
    "subspace": "random subspaces of {dimensions} dimensions (too few single ones beside the axis are loud enough)",
    "dose": "random directions distributed as the data at a dose of {dose:.2g} on average, for a change of equal norm "
    "(nothing beside the axis is loud enough)",
}


def notes(
    effects: Effects | None, under: Mapping[str, Readout], matching: Table | None, targets: str
) -> tuple[str, ...]:
    """How controls were matched, what dose 0 did, and what could not be read."""
    if effects is None or matching is None:
        return ("The model was not run under edits: there is nothing to say about use.",)
    said = [_matching(row, targets) for row in matching.rows()]
    largest, n = dose_zero(under)
    said.append(f"Dose 0: the largest KL is {largest:g} bits in {n} conditions.")
    if not any(e.readout == "later_r2" for e in effects.found):
        said.append("later_r2 is left out: no later layer of the site, or nothing varies there.")
    read_on = {e.on for e in effects.found}
    if "sula" in read_on:
        said.append("slope and sula_kl: on SULA prompts (condition main), edited with the same axes and controls.")
    if "mixed" in read_on:
        said.append("loss: on the prompts `mixed`, edited with the same axes and controls.")
    return tuple(said)


def dose_zero(under: Mapping[str, Readout]) -> tuple[float, int]:
    """The largest KL of any prompt at dose 0 (bits; anything but 0 is an edit that acts unasked), and of how many."""
    still = [under[key] for key in under if (name := Name.parse(key)).dose == 0 and name.how == REMOVED]
    return max((float(np.abs(read["kl"]).max()) for read in still), default=float("nan")), len(still)


def _matching(row: Mapping[str, Any], targets: str) -> str:
    how = _MATCHED[row["matched_by"]].format(dimensions=row["dimensions"], dose=row["dose"], targets=targets)
    text = (
        f"Controls at layer {row['layer']} (of {row['layers']}): {how}; variance ratio over all edited positions "
        f"{row['measured_lowest']:.3f} to {row['measured_highest']:.3f}, {row['rejected']} draws rejected."
    )
    if row["alike"] > ALIKE:
        text += f" They resemble one another (mean squared cosine {row['alike']:.2f}): the null is narrow."
    return text
