"""Figures of the attention entropy: the curve over depth with its references, and every head on its own."""

from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#7f7f7f"
_PLACES = {"scored": "the scored positions", "all": "all positions"}


def entropy_figures(findings: Findings) -> tuple[Figure, ...]:
    """For each kind of position the curve and the heads."""
    figures = []
    for where in dict.fromkeys(findings.tables["by_layer"]["positions"].tolist()):
        curve, heads = (
            table.where(table["positions"] == where) for table in (findings.tables[k] for k in ("by_layer", "by_head"))
        )
        figures.append(
            Figure(
                f"entropy_{where}",
                f"Attention entropy over depth, {_PLACES[where]}",
                "Blue falls where attention focuses; between blue and orange (the keys of another prompt at the same "
                "positions) lies what it focuses on because of this prompt; grey is a uniform row.",
                _curve(curve),
                "by_layer",
            )
        )
        figures.append(
            Figure(
                f"heads_{where}",
                f"Entropy of every head, {_PLACES[where]}",
                "One square a head; yellow heads look everywhere, dark ones at a single key. Heads of one layer "
                "differing as much as layers do is what the null of dealt heads compares with.",
                _heads(heads),
                "by_head",
            )
        )
    return tuple(figures)


def _curve(table: Table) -> "go.Figure":
    import plotly.graph_objects as go

    plot = go.Figure()
    layer = table["layer"]
    lines = (
        ("uniform", "uniform row", _GREY, "dash"),
        ("other_keys", "another prompt's keys", _ORANGE, "dot"),
        ("no_first", "without the first position", _GREEN, "dashdot"),
        ("entropy", "entropy", _BLUE, "solid"),
    )
    for name, label, colour, dash in lines:
        edge = np.concatenate([table[f"{name}_low"], table[f"{name}_high"][::-1]])
        plot.add_scatter(
            x=np.concatenate([layer, layer[::-1]]), y=edge, fill="toself", fillcolor=colour, opacity=0.2,
            line_width=0, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        plot.add_scatter(x=layer, y=table[name], name=label, mode="lines+markers", line={"color": colour, "dash": dash})
    plot.update_layout(
        xaxis_title="layer", yaxis_title="attention entropy / bits", yaxis_rangemode="tozero",
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
    )  # fmt: skip
    return plot


def _heads(table: Table) -> "go.Figure":
    import plotly.graph_objects as go

    n_heads = int(table["head"].max()) + 1
    plot = go.Figure(
        go.Heatmap(z=table["entropy"].reshape(-1, n_heads).T, colorscale="Cividis", zmin=0, colorbar_title="bits")
    )
    plot.update_layout(
        xaxis_title="layer", yaxis_title="head", paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)"
    )
    return plot
