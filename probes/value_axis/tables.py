"""The tables of the value axis: how each axis was judged, what is known of the ridge axis, and its predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Scalar
from interp.table import LABEL, Table

from ..measures.cloud import Cloud
from ..measures.halves import Halving
from ..measures.maps import snippets
from ..measures.places import PLACE_UNITS, Place, place_columns
from ..measures.profiles import scalar_columns
from .readout import Axis

BY_LAYER = (
    "Axes fitted on one half of the prompts and tested on the other, at every site and layer (in `resid`, depth): "
    "held-out R² and correlation, means over repeated halvings with 95 % intervals, what refits on exchanged entropies "
    "give, and p over all layers and sites; `nuisances`: kept, or out with all that the last "
    "token determines. One place is primary and named beforehand; the others are exploratory."
)
AXES = (
    "The ridge axis at every site and layer: |cos| with PC1, selectivity beside other random "
    "labellings, and |cos| between disjoint halves (mean, lowest, highest split) beside random "
    "directions of the same covariance. `penalty` is relative to the mean squared singular value."
)
HELD_OUT = "The judged prompts at the primary place: their entropy, and what ridge fitted on the others predicts."


Judged = Mapping[tuple[str, str, str], tuple[list[Scalar], list[Scalar]]]
"""R² and correlation at every place by treatment of nuisances, axis and target."""


@dataclass(frozen=True)
class AxisRow:
    """What is known of the ridge axis of one place besides how well it reads."""

    cosine: Scalar
    selectivity: Scalar
    control_r2: float
    stability: Scalar
    split_cosines: Float[np.ndarray, " split"]
    penalty: float


def by_layer_table(places: Sequence[Place], judged: Judged) -> Table:
    """One row for every axis, target, treatment of nuisances and place."""
    parts = []
    for (nuisances, axis, target), (r2, correlation) in judged.items():
        where = place_columns(places)
        parts.append({
            "site": where["site"], "layer": where["layer"], "axis": np.full(len(places), axis),
            "target": np.full(len(places), target), "nuisances": np.full(len(places), nuisances),
            "n_distinct_rows": where["n_distinct_rows"], **scalar_columns("r2", r2, is_tested=True),
            **scalar_columns("correlation", correlation, is_tested=True),
        })  # fmt: skip
    units = {"axis": LABEL, "target": LABEL, "nuisances": LABEL, "r2": "fraction", "correlation": "1"}
    return Table.stacked(parts, PLACE_UNITS | units, BY_LAYER)


def axes_table(places: Sequence[Place], rows: Sequence[AxisRow]) -> Table:
    """One row for every place."""
    columns = {
        **place_columns(places),
        **scalar_columns("cosine", [row.cosine for row in rows], is_tested=False),
        **scalar_columns("selectivity", [row.selectivity for row in rows], is_tested=False),
        "control_r2": np.array([row.control_r2 for row in rows]),
        **scalar_columns("stability", [row.stability for row in rows], is_tested=False),
        "stability_lowest": np.array([row.split_cosines.min() for row in rows]),
        "stability_highest": np.array([row.split_cosines.max() for row in rows]),
        "penalty": np.array([row.penalty for row in rows]),
    }
    fractions, ones = ("selectivity", "control_r2"), ("cosine", "stability", "stability_lowest", "stability_highest")
    units = PLACE_UNITS | dict.fromkeys(fractions, "fraction") | dict.fromkeys((*ones, "penalty"), "1")
    return Table(columns, units, AXES)


def held_out_table(pool: Cloud, halving: Halving, axis: Axis | None, capture: Capture) -> Table:
    """What is sought and its prediction at the judged rows of a halving; of text also the end of it."""
    fitted_mean = float(pool.sought[halving.fitting].mean())
    rows = pool.rows.where(halving.judged)
    predicted = np.full(rows.n_rows, np.nan) if axis is None else axis.predicted
    columns = {name: rows[name] for name in ("prompt", "position", pool.target.name)}
    units = {name: rows.units[name] for name in columns}
    if "domain" in rows:
        columns["domain"], units["domain"] = rows["domain"], rows.units["domain"]
    name = pool.target.predicted
    columns[name], units[name] = predicted + fitted_mean, units[pool.target.name]
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(rows, capture), LABEL
    return Table(columns, units, HELD_OUT)
