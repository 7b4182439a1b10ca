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
    rows = [
        {
            "site": place.site, "layer": place.layer, "axis": row.axis, "target": row.target,
            "nuisances": row.nuisances, "n_distinct_rows": place.n_distinct_rows,
            **_columns("r2", row.r2[i]), **_columns("correlation", row.correlation[i]),
        }
        for row in judged for i, place in enumerate(places)
    ]  # fmt: skip
    return Table.from_rows(rows, {name: _unit(name) for name in rows[0]}, BY_LAYER)


def axes_table(places: Sequence[Place], rows: Sequence[AxisRow]) -> Table:
    """One row for every place."""
    made = [
        {
            "site": place.site, "layer": place.layer, "n_distinct_rows": place.n_distinct_rows,
            **_columns("cosine", row.cosine), **_columns("selectivity", row.selectivity),
            "control_r2": row.control_r2, **_columns("stability", row.stability),
            "stability_lowest": float(row.split_cosines.min()), "stability_highest": float(row.split_cosines.max()),
            "penalty": row.penalty,
        }
        for place, row in zip(places, rows, strict=True)
    ]  # fmt: skip
    return Table.from_rows(made, {name: _unit(name) for name in made[0]}, AXES)


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


def _columns(name: str, scalar: Scalar) -> dict[str, float]:
    low, high = scalar.interval or (np.nan, np.nan)
    null_low, null_high = scalar.null.band if scalar.null else (np.nan, np.nan)
    found = {name: scalar.value, f"{name}_low": low, f"{name}_high": high,
             f"{name}_null": scalar.null.value if scalar.null else np.nan,
             f"{name}_null_low": null_low, f"{name}_null_high": null_high}  # fmt: skip
    if name in ("r2", "correlation", "cosine"):
        found[f"{name}_p"] = np.nan if scalar.p is None else scalar.p
    return found


def _unit(column: str) -> str:
    known = {"layer": "layer", "n_distinct_rows": "rows", "control_r2": "fraction"}
    if column in ("site", "axis", "target", "nuisances"):
        return LABEL
    if column.endswith("_p"):
        return "probability"
    return known.get(column, "fraction" if column.startswith(("r2", "selectivity")) else "1")
