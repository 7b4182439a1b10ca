"""The tables of the value axis: how each axis was judged, what is known of the ridge axis, and its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Scalar
from interp.table import LABEL, Table

from ..measures.cloud import Cloud
from ..measures.halves import Halves
from ..measures.maps import snippets
from ..measures.places import Place
from ..measures.profiles import scalar_columns
from .scalars import Judgement

BY_LAYER = (
    "Axes fitted on one half of the prompts and judged on the other, at every site and layer (in `resid`, depth): "
    "held-out R² and correlation with 95 % intervals over judged prompts, what refits on exchanged entropies give, "
    "and p over all layers and sites. One place is primary and named beforehand; the others are exploratory."
)
AXES = (
    "The ridge axis at every site and layer: |cos| with PC1 beside refits on exchanged entropies, selectivity beside "
    "other random labellings, and |cos| between disjoint halves (mean, lowest, highest split) beside random "
    "directions of the same covariance. `penalty` is relative to the mean squared singular value."
)
_UNITS = {"site": LABEL, "layer": "layer", "n_distinct_rows": "rows"}
HELD_OUT = "The judged prompts at the primary place: their entropy, and what ridge fitted on the others predicts."


@dataclass(frozen=True)
class JudgedRow:
    """One axis and target with nuisances kept or removed, at every place."""

    nuisances: str
    axis: str
    target: str
    r2: Sequence[Scalar]
    correlation: Sequence[Scalar]


@dataclass(frozen=True)
class AxisRow:
    """What is known of the ridge axis of one place besides how well it reads."""

    cosine: Scalar
    selectivity: Scalar
    control_r2: float
    stability: Scalar
    split_cosines: Float[np.ndarray, " split"]
    penalty: float


def by_layer_table(places: Sequence[Place], judged: Sequence[JudgedRow]) -> Table:
    """One row for every axis, target, treatment of nuisances and place."""
    named = [
        {"site": place.site, "layer": place.layer, "axis": row.axis, "target": row.target,
         "nuisances": row.nuisances, "n_distinct_rows": place.n_distinct_rows}
        for row in judged for place in places
    ]  # fmt: skip
    columns = {name: np.array([each[name] for each in named]) for name in named[0]}
    columns |= scalar_columns("r2", [scalar for row in judged for scalar in row.r2], is_tested=True)
    correlations = [scalar for row in judged for scalar in row.correlation]
    columns |= scalar_columns("correlation", correlations, is_tested=True)
    return Table(columns, _UNITS | {"axis": LABEL, "target": LABEL, "nuisances": LABEL, "r2": "fraction",
                                    "correlation": "1"}, BY_LAYER)  # fmt: skip


def axes_table(places: Sequence[Place], rows: Sequence[AxisRow]) -> Table:
    """One row for every place."""
    columns = {
        "site": np.array([place.site for place in places]),
        "layer": np.array([place.layer for place in places]),
        "n_distinct_rows": np.array([place.n_distinct_rows for place in places]),
        **scalar_columns("cosine", [row.cosine for row in rows], is_tested=True),
        **scalar_columns("selectivity", [row.selectivity for row in rows], is_tested=False),
        "control_r2": np.array([row.control_r2 for row in rows]),
        **scalar_columns("stability", [row.stability for row in rows], is_tested=False),
        "stability_lowest": np.array([row.split_cosines.min() for row in rows]),
        "stability_highest": np.array([row.split_cosines.max() for row in rows]),
        "penalty": np.array([row.penalty for row in rows]),
    }
    fractions, ones = ("selectivity", "control_r2"), ("cosine", "stability", "stability_lowest", "stability_highest")
    units = _UNITS | dict.fromkeys(fractions, "fraction") | dict.fromkeys((*ones, "penalty"), "1")
    return Table(columns, units, AXES)


def held_out_table(pool: Cloud, halves: Halves, judgement: Judgement, place: int, capture: Capture) -> Table:
    """Entropy and prediction of the judged rows, in bits; of text also the end of it."""
    fitted_mean = float(pool.entropy_bits[halves.fitting].mean())
    rows = pool.rows.where(halves.judged)
    predicted = judgement.readings[place].predicted.get(judgement.target, np.full(rows.n_rows, np.nan))
    columns = {name: rows[name] for name in ("prompt", "position", "next_entropy_bits")}
    units = {name: rows.units[name] for name in columns}
    if "domain" in rows:
        columns["domain"], units["domain"] = rows["domain"], rows.units["domain"]
    columns["predicted_bits"], units["predicted_bits"] = predicted + fitted_mean, "bits"
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(rows, capture), LABEL
    return Table(columns, units, HELD_OUT)
