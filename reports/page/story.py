"""One figure of the whole account: binding, elimination, refinement on one depth axis, for a model and for the tunnel.

Binding is how little keys overlap (orthogonality) and how much attended keys stand out (QK contrast); elimination is
attention that narrows (its entropy); refinement is values along one axis (PC1's share) that tells the entropy (R²).
The stages are those of "The Bayesian geometry of transformer attention"; the figure shows where each number stands to
its null, not that one leads to the next.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.drawing import BELOW_R2, NULL, PALETTE, VALUE, add_band, add_null_band, faded, r2_range
from interp.findings import Findings
from interp.probe import Figure
from interp.records.record import RunRecord
from interp.table import LABEL, Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

NAME = "story"
COURSES_UNITS: Mapping[str, str] = {
    "measure": LABEL, "layer": "layer", "depth": "fraction of depth", "value": "1", "low": "1", "high": "1",
    "null": "1", "null_low": "1", "null_high": "1",
}  # fmt: skip

TITLE = "Binding, elimination, refinement"
READING = (
    "One depth axis, from the first layer (0) to the last (1). Blue is {model}, with its 95 % band where there is one; "
    "grey, the null of each number with its 95 % band. {tunnel}Keys below their grey band overlap less than chance; a "
    "contrast above it means that content decides what is attended to; entropy that falls below it, that attention "
    "narrows; a share above it, that values lie along one axis; R² above it, that values tell the entropy."
)
OTHER = "Orange is the shipped tunnel, whose posterior is known, its own null dotted. "


@dataclass(frozen=True)
class _Course:
    """One measure: where its columns stand and which rows they are."""

    measure: str
    probe: str
    table: str
    column: str
    null: str
    where: Callable[[Table], np.ndarray] | None = None


def _everywhere(table: Table) -> np.ndarray:
    return table["positions"] == "all" if (table["positions"] == "all").any() else table["positions"] == "scored"


def _told(table: Table) -> np.ndarray:
    return (
        (table["site"] == "v") & (table["axis"] == "ridge") & (table["target"] == "next_entropy_bits")
        & (table["nuisances"] == "kept")
    )  # fmt: skip


_COURSES = (
    _Course("binding: mean |cos| of columns of W_K", "orthogonality", "wk_columns", "abs", "abs_null"),
    _Course("binding: QK contrast (bits)", "qk_alignment", "by_layer", "logit", "logit_null"),
    _Course(
        "elimination: attention entropy (bits)", "attention_entropy", "by_layer", "entropy", "other_keys", _everywhere
    ),
    _Course("refinement: PC1's share of value variance", "manifold", "by_layer", "pc1_share", "pc1_share_null"),
    _Course("refinement: R² of entropy from values", "value_axis", "by_layer", "r2", "r2_null", _told),
)


def courses(record: RunRecord) -> Table | None:
    """The five measures over depth, one row a layer of each; None where the record lacks one of their probes."""
    found = [_rows(course, record.findings) for course in _COURSES]
    parts = [part for part in found if part is not None]
    if len(parts) < len(_COURSES):
        return None
    columns = {name: np.concatenate([part[name] for part in parts]) for name in COURSES_UNITS}
    return Table(columns, dict(COURSES_UNITS), "Each measure by layer, with the null of its own probe.")


def _rows(course: _Course, findings: Mapping[str, Findings]) -> dict[str, np.ndarray] | None:
    table = findings[course.probe].tables.get(course.table) if course.probe in findings else None
    if table is None or course.column not in table:
        return None
    mine = table if course.where is None else table.where(course.where(table))
    if mine.n_rows == 0:
        return None
    layer = np.asarray(mine["layer"])
    columns = {
        "measure": np.full(mine.n_rows, course.measure), "layer": layer, "depth": layer / max(1, int(layer.max())),
        "value": mine[course.column], "null": mine[course.null],
    }  # fmt: skip
    for bound in ("low", "high"):
        columns[bound] = _column(mine, f"{course.column}_{bound}")
        columns[f"null_{bound}"] = _column(mine, f"{course.null}_{bound}")
    return columns


def _column(table: Table, name: str) -> np.ndarray:
    """A column, or as many NaN where the table has none of this name."""
    return table[name] if name in table else np.full(table.n_rows, np.nan)


def story_table(own: Table, model: str, tunnel: Table | None, tunnel_name: str) -> Table:
    """The data of the figure: both courses, with whose each row is."""
    parts = [(model, own)] + ([] if tunnel is None else [(tunnel_name, tunnel)])
    whose = np.concatenate([np.full(part.n_rows, name, dtype=object) for name, part in parts])
    columns = {name: np.concatenate([part[name] for _, part in parts]) for name in COURSES_UNITS}
    return Table({"model": whose, **columns}, {"model": LABEL, **COURSES_UNITS}, own.caption)


def story_figure(own: Table, model: str, tunnel: Table | None) -> Figure:
    """The five measures one below the other."""
    from plotly.subplots import make_subplots

    names = [course.measure for course in _COURSES]
    plot = make_subplots(rows=len(names), cols=1, shared_xaxes=True, vertical_spacing=0.05, subplot_titles=names)
    for i, name in enumerate(names):
        n_before = len(_traces(plot))
        if tunnel is not None:
            _draw(plot, tunnel.where(tunnel["measure"] == name), "tunnel", PALETTE[1], is_first=i == 0)
        _draw(plot, own.where(own["measure"] == name), "model", VALUE, is_first=i == 0)
        axes = {"xaxis": f"x{i + 1 if i else ''}", "yaxis": f"y{i + 1 if i else ''}"}
        for trace in _traces(plot)[n_before:]:
            trace.update(axes)
    plot.update_layout(template="none", height=560, hovermode="closest")
    plot.update_xaxes(showgrid=False, zeroline=False, range=[-0.03, 1.03])
    plot.update_xaxes(title_text="depth (0: first layer, 1: last)", row=len(names), col=1)
    plot.update_yaxes(gridcolor="rgba(128,128,128,0.2)", zeroline=False, nticks=5)
    told = own["measure"] == names[-1]
    shown = r2_range(own["value"][told], own["low"][told])
    plot.update_yaxes(range=shown, row=len(names), col=1)
    plot.update_annotations(x=0, xanchor="left", font={"size": 12})
    reading = READING.format(model=model, tunnel="" if tunnel is None else OTHER) + (BELOW_R2 if shown else "")
    return Figure(NAME, TITLE, reading, plot, NAME)


def _traces(plot: "go.Figure") -> tuple[Any, ...]:
    traces: Any = plot.data
    return traces


def _draw(plot: "go.Figure", mine: Table, who: str, colour: str, *, is_first: bool) -> None:
    """A measure with its interval over its null: grey for the model, dotted in its own colour for the tunnel."""
    x = mine["depth"]
    is_own = who == "model"
    label = {"model": "this model", "tunnel": "shipped tunnel"}[who]
    if is_own:
        add_null_band(plot, x, (mine["null_low"], mine["null_high"]))
    grey = {"color": NULL, "dash": "dash"} if is_own else {"color": faded(colour, 0.7), "dash": "dot"}
    null = "null" if is_own else "null, shipped tunnel"
    plot.add_scatter(
        x=x, y=mine["null"], name=null, legendgroup=null, showlegend=is_first, mode="lines", line=grey
    )  # fmt: skip
    add_band(plot, x, (mine["low"], mine["high"]), colour)
    line = {"color": colour, "dash": "solid" if is_own else "dash"}
    plot.add_scatter(
        x=x, y=mine["value"], name=label, legendgroup=label, showlegend=is_first, mode="lines+markers", line=line,
        customdata=mine["layer"], hovertemplate="layer %{customdata}: %{y:.3g}<extra>%{fullData.name}</extra>",
    )  # fmt: skip
