"""Figures of the query-key alignment: contrasts over depth with their null, matching heads, binding by layer."""

from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#7f7f7f"
_CLEAR = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}


def alignment_figures(findings: Findings) -> tuple[Figure, ...]:
    """Contrast over depth and by head; binding and items where they are defined."""
    by_layer, by_head = findings.tables["by_layer"], findings.tables["by_head"]
    figures = [
        Figure(
            "contrast", "Attended against unattended keys, over depth",
            "Blue lies above orange where the content of the prompt decides which keys are singled out, and by how much.",
            _curve(by_layer, "logit", "log2 weight, attended minus unattended / bits"), "by_layer",
        ),
        Figure(
            "matching", "What each head gains from its own keys",
            "One square a head: logit contrast minus that with another prompt's keys; blue heads match content.",
            _heads(by_head, by_head["logit"] - by_head["logit_null"]), "by_head",
        ),
    ]  # fmt: skip
    if "items" in findings.tables:
        items = findings.tables["items"]
        figures.append(
            Figure(
                "posterior", "Attention against the exact posterior",
                "One dot a head; below the grey line (attention spread evenly over the items) a head knows more than "
                "which items there are, near 0 its attention is the posterior.",
                _items(items), "items",
            )
        )  # fmt: skip
    if "binding" in findings.tables:
        figures.append(
            Figure(
                "binding", "Binding: keys at value positions by the token bound to them",
                "Near 1 the key of a value says which token it belongs to; orange is the same with the bound tokens "
                "renamed at random.",
                _curve(findings.tables["binding"], "binding", "share of key variance explained"), "binding",
            )
        )  # fmt: skip
    return tuple(figures)


def _curve(table: Table, name: str, title: str) -> "go.Figure":
    import plotly.graph_objects as go

    plot = go.Figure()
    layer = table["layer"]
    for column, label, colour in ((f"{name}_null", "null", _ORANGE), (name, "measured", _BLUE)):
        edge = np.concatenate([table[f"{column}_low"], table[f"{column}_high"][::-1]])
        plot.add_scatter(
            x=np.concatenate([layer, layer[::-1]]), y=edge, fill="toself", fillcolor=colour, opacity=0.2,
            line_width=0, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        plot.add_scatter(x=layer, y=table[column], name=label, mode="lines+markers", line_color=colour)
    plot.update_layout(xaxis_title="layer", yaxis_title=title, yaxis_rangemode="tozero", **_CLEAR)
    return plot


def _heads(table: Table, values: np.ndarray) -> "go.Figure":
    import plotly.graph_objects as go

    n_heads = int(table["head"].max()) + 1
    grid = values.reshape(-1, n_heads).T
    most = float(np.nanmax(np.abs(grid))) if np.isfinite(grid).any() else 1.0
    heat = go.Heatmap(z=grid, colorscale="RdBu", zmin=-most, zmax=most, colorbar_title="bits")
    plot = go.Figure(heat)
    plot.update_layout(xaxis_title="layer", yaxis_title="head", **_CLEAR)
    return plot


def _items(table: Table) -> "go.Figure":
    import plotly.graph_objects as go

    plot = go.Figure()
    errors = {
        "array": table["posterior_kl_high"] - table["posterior_kl"],
        "arrayminus": table["posterior_kl"] - table["posterior_kl_low"],
    }
    x = [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)]
    plot.add_scatter(x=x, y=table["posterior_kl"], error_y=errors, mode="markers", marker_color=_BLUE, name="measured")
    plot.add_scatter(x=x, y=table["posterior_kl_null"], mode="markers", marker_color=_ORANGE, name="items relabelled",
                     marker_symbol="line-ew-open")  # fmt: skip
    plot.add_scatter(x=x, y=table["posterior_kl_uniform"], mode="lines", line_color=_GREY, name="even attention")
    plot.update_layout(
        xaxis={"title": "layer.head", "type": "category"}, yaxis_title="KL(posterior || attention) / bits", **_CLEAR
    )
    return plot
