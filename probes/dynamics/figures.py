"""Figures of a training: the values at every checkpoint, and what settles when."""

from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, PALETTE, Chart, add_menu, places, scale_of, span
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CURVES = (
    ("frame_tv", "attention patterns", PALETTE[0], "solid"),
    ("value_distance", "values", PALETTE[2], "solid"),
    ("entropy_error", "entropy error", PALETTE[1], "solid"),
    ("loss", "loss", PALETTE[1], "solid"),
    ("output", "output", PALETTE[3], "dash"),
)
"""Columns of `by_step` that are distances from the end, or differences from it."""

_DISTANCES = ("frame_tv", "value_distance", "output")
_REFINED = {
    "relative_length": "length of the curve over the spread (1)",
    "manifold_length": "length of the curve (activation)",
    "low_entropy_distance": "distance of certain states, over any two (1)",
    "pc1_plus_pc2_share": "PC1+PC2 share (fraction of variance)",
    "participation_ratio": "participation ratio (dimensions)",
    "entropy_correlation": "|Spearman ρ| of PC1 and the model's entropy",
    "bayes_entropy_correlation": "|Spearman ρ| of PC1 and the posterior's entropy",
    "token_keys": "mean |cos| of token keys, layer 0",
    "wk_columns": "mean |cos| of columns of W_K",
}
_ERRORS = (
    ("entropy_error", "entropy error", PALETTE[0], "solid"), ("kl", "KL", PALETTE[1], "solid"),
    ("loss", "loss", PALETTE[2], "solid"),
)  # fmt: skip
_EXCHANGED = (
    ("own", "checkpoint, unchanged", NULL, "dot"),
    ("final_with_patterns", "final model with the checkpoint's attention", PALETTE[0], "solid"),
    ("with_final_patterns", "checkpoint with the final attention", PALETTE[2], "solid"),
)
_MAX_TICKS = 9


def dynamics_figures(findings: Findings) -> tuple[Figure, ...]:
    """The pictures first, then curves, refinement, errors and the exchange; nothing without checkpoints."""
    if "by_step" not in findings.tables:
        return ()
    tables = findings.tables
    by_step = tables["by_step"]
    drawn = (
        Figure(
            "unfurling", "Values during training",
            "Move through the checkpoints: values on the first plane of the final ones, coloured by entropy. No null "
            "is drawn; the next figures have it.",
            _unfurling(tables["points"]), "points",
        ),
        Figure(
            "courses", "What settles first",
            "Distance from the final model, relative to the first checkpoint, with 95 % bands over prompts. What stays "
            "below the dotted line first has settled first. Errors in bits fall as the square of a distance: compare "
            "attention with the output, on its scale. No null is drawn: the exchange of patterns tests the order.",
            _curves(findings), "by_step",
        ),
        Figure(
            "refinement", "How the values change",
            "Choose a number. Blue is the checkpoint; dashed is the null: unstructured values, or permuted entropies.",
            _refinement(by_step), "by_step",
        ),
        Figure(
            "errors", "Precision",
            "Errors of the prediction with 95 % bands over prompts; those in bits are from the exact posterior, or on "
            "the text. No null is drawn: compare with step 0, where nothing is learned.",
            _lines(by_step, "error (bits)", _ERRORS), "by_step",
        ),
    )  # fmt: skip
    if "exchange" not in tables:
        return drawn
    reading = (
        "Attention patterns are exchanged between each checkpoint and the final model. Where the final model with the "
        "checkpoint's attention has the lower error, attention is closer to final than the rest of the network. The "
        "null is that both lines agree: the table has the paired difference."
    )
    plot = _lines(tables["exchange"], "error (bits)", _EXCHANGED)
    return (*drawn, Figure("exchange", "Attention of a checkpoint in the final model", reading, plot, "exchange"))


def _over_steps(table: Table, axis: str) -> Chart:
    """A chart along log2(1 + step), so that step 0 has a place."""
    steps = np.asarray(table["step"], dtype=np.float64)
    chart = Chart(table.with_column("along", np.log2(1 + steps), "1"), "along", "training step (log axis)", axis)
    ticks = np.unique(steps)
    if len(ticks) > _MAX_TICKS:
        ticks = ticks[np.linspace(0, len(ticks) - 1, _MAX_TICKS).round().astype(int)]
    chart.plot.update_xaxes(tickvals=np.log2(1 + ticks), ticktext=[str(int(step)) for step in ticks])
    return chart


def _line(chart: Chart, column: str, name: str, colour: str, dash: str) -> None:
    hover = "step %{customdata}: %{y:.4g}<extra>%{fullData.name}</extra>"
    chart.curve(column, name, colour, dash, customdata=chart.table["step"], hovertemplate=hover)


def _lines(table: Table, axis: str, lines: tuple[tuple[str, str, str, str], ...]) -> "go.Figure":
    chart = _over_steps(table, axis)
    for line in lines:
        if line[0] in table:
            _line(chart, *line)
    chart.plot.update_yaxes(type="log")
    return chart.plot


def _unfurling(points: Table) -> "go.Figure":
    """A frame for every checkpoint, of the same rows on fixed axes."""
    import plotly.graph_objects as go

    steps: list[int] = np.unique(points["step"]).tolist()
    last = points.where(points["step"] == steps[-1])
    chart = Chart(last, "pc1", "PC1 of the final values (activation)", "PC2 of the final values (activation)")
    plot, bits = chart.plot, last["entropy_bits"]
    scale = scale_of(bits, "entropy", "bits") | {"opacity": 0.8}
    hover_texts = [[where, float(b)] for where, b in zip(places(last), bits, strict=True)]
    hover = "%{customdata[0]}<br>%{customdata[1]:.2f} bits<extra></extra>"
    chart.points("pc2", colour=scale, size=7, customdata=hover_texts, hovertemplate=hover)
    plot.frames = [
        go.Frame(
            name=str(step), traces=[0],
            data=[go.Scatter(x=mine["pc1"], y=mine["pc2"], mode="markers", showlegend=False)],
        )
        for step, mine in points.groups("step")
    ]  # fmt: skip
    options = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    buttons = [{"method": "animate", "args": [[str(step)], options], "label": str(step)} for step in steps]
    plot.update_layout(
        xaxis={"range": span(points["pc1"])}, yaxis={"range": span(points["pc2"])},
        sliders=[{"active": len(steps) - 1, "currentvalue": {"prefix": "step "}, "pad": {"t": 40}, "steps": buttons}],
    )  # fmt: skip
    return plot


def _curves(findings: Findings) -> "go.Figure":
    table = findings.tables["by_step"]
    chart = _over_steps(table, "distance from the end, relative to the first")
    for column, *how in _CURVES:
        if column in table and not np.isnan(table[column]).any():
            first, last = float(table[column][0]), float(table[column][-1])
            base = 0.0 if column in _DISTANCES else last
            if first != base:
                scaled = chart.table
                for name in (column, f"{column}_low", f"{column}_high"):
                    scaled = scaled.with_column(name, (table[name] - base) / (first - base), "1")
                _line(chart.of(scaled), column, *how)
    chart.plot.add_hline(y=float(findings.arrays["epsilon"]), line={"color": NULL, "dash": "dot", "width": 1})
    return chart.plot


def _refinement(table: Table) -> "go.Figure":
    names = [name for name in _REFINED if name in table and np.isfinite(table[name]).any()]
    chart = _over_steps(table, _REFINED[names[0]])
    for name in names:
        _line(chart, name, "measured", PALETTE[0], "solid")
        chart.null(name)
    add_menu(chart.plot, {name: (name.replace("_", " "), _REFINED[name]) for name in names})
    return chart.plot
