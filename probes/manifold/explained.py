"""What else the first axis follows: the share of PC1's variance that plain properties of the prompts account for."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from interp.statistics.correlation import Explained, explained_by_groups, explained_by_number
from interp.table import Table

from ..measures.cloud import Cloud
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


def explained_table(scores: Float[np.ndarray, "layer row"], cloud: Cloud) -> Table:
    """One row for every layer and property that varies; `position` is left out where it is the length minus one."""
    rows = [
        {"layer": layer, "factor": name, "share": found.share, "chance": found.chance, "n_values": found.n_values}
        for layer, coordinate in enumerate(scores)
        for name, found in _factors(coordinate, cloud)
    ]
    return QUANTITIES.from_rows(rows, ("layer", "factor", "share", "chance", "n_values"), CAPTION)


def _factors(coordinate: np.ndarray, cloud: Cloud) -> Iterator[tuple[str, Explained]]:
    rows = cloud.rows
    for column, name in _GROUPS.items():
        if column in rows and len(np.unique(rows[column])) > 1:
            yield name, explained_by_groups(coordinate, rows[column])
    for column in dict.fromkeys((*_NUMBERS, cloud.target.name)):
        last_position = column == "position" and (rows["position"] == rows["length"] - 1).all()
        if column in rows and not last_position and np.ptp(rows[column]) > 0:
            yield _NUMBERS.get(column, cloud.target.words), explained_by_number(coordinate, rows[column])
