"""What else the first axis follows: the share of PC1's variance that plain properties of the prompts account for."""

import numpy as np
from jaxtyping import Float

from interp.statistics.correlation import explained_by_groups, explained_by_number
from interp.table import Table

from ..measures.target import Target
from .quantities import QUANTITIES

_GROUPS = {"token": "last token", "domain": "domain"}
_NUMBERS = {
    "length": "length", "position": "position", "next_entropy_bits": "next-token entropy",
    "bayes_entropy_bits": "Bayes entropy",
}  # fmt: skip

CAPTION = (
    "Share of PC1's variance that one property of the rows accounts for (η² of groups, R² of a straight line for "
    "numbers), and what a property with as many values explains by chance."
)


def explained_table(scores: Float[np.ndarray, "layer row"], rows: Table, target: Target) -> Table:
    """One row for every layer and property that varies; `position` is left out where it is the length minus one."""
    numbers = _NUMBERS | {target.name: _NUMBERS.get(target.name, target.words)}
    if (rows["position"] == rows["length"] - 1).all():
        del numbers["position"]
    factors = [
        (name, explained_by_groups, rows[column]) for column, name in _GROUPS.items()
        if column in rows and len(np.unique(rows[column])) > 1
    ] + [
        (name, explained_by_number, rows[column]) for column, name in numbers.items()
        if column in rows and np.ptp(rows[column]) > 0
    ]  # fmt: skip
    found = [
        {"layer": layer, "factor": name, **vars(explained(coordinate, values))}
        for layer, coordinate in enumerate(scores) for name, explained, values in factors
    ]  # fmt: skip
    return QUANTITIES.from_rows(found, ("layer", "factor", "share", "chance", "n_values"), CAPTION)
