"""The tables of the value axis: scores of both axes, more on the ridge axis, and its predictions."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.table import LABEL, Table

from ..measures.cloud import Cloud
from ..measures.halves import HalfSplit
from ..measures.layers import Layer, layer_columns
from ..measures.maps import snippets
from .evaluation import Evaluation
from .quantities import QUANTITIES

BY_LAYER = (
    "Axes fitted on one half of the prompts and tested on the other, at every site and layer (in `resid`, depth): "
    "held-out R² and correlation, means over half splits with 95 % intervals, what refits on permuted entropies "
    "give, and p over all layers and sites; `nuisances`: kept, or out with all that the last "
    "token determines. One place is primary and named beforehand; the others are exploratory."
)
BY_AXIS = (
    "The ridge axis at every site and layer: |cos| with PC1, and selectivity beside other random labellings. "
    "`penalty` is relative to the mean squared singular value."
)
HELD_OUT = "Held-out prompts: {target}, and what a readout fitted on the others predicts, where the answer says."


def by_layer_table(places: Sequence[Layer], evaluations: Mapping[tuple[str, str, str], Evaluation]) -> Table:
    """One row for every axis, target, treatment of nuisances and place."""
    where, n = layer_columns(places), len(places)
    parts = [
        {
            "site": where["site"], "layer": where["layer"], "axis": np.full(n, axis), "target": np.full(n, target),
            "nuisances": np.full(n, nuisances), "n_distinct_rows": where["n_distinct_rows"], "r2": evaluation.r2,
            "correlation": evaluation.correlation,
        }
        for (nuisances, axis, target), evaluation in evaluations.items()
    ]  # fmt: skip
    return QUANTITIES.stacked(parts, BY_LAYER)


def held_out_table(
    pool: Cloud, half_split: HalfSplit, predicted: Float[np.ndarray, " held_out"], capture: Capture
) -> Table:
    """What is sought and its prediction at the held-out rows of a half split; of text also the end of it."""
    rows, target = pool.rows.where(half_split.held_out), pool.target
    names = ("prompt", "position", target.name, *(("domain",) if "domain" in rows else ()))
    columns = {name: rows[name] for name in names}
    columns[target.predicted] = predicted + float(pool.sought[half_split.fitting].mean())
    units = {name: rows.units[name] for name in names} | {target.predicted: rows.units[target.name]}
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(rows, capture), LABEL
    return Table(columns, units, target.say(HELD_OUT))
