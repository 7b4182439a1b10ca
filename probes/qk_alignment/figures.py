"""Figures of the query-key alignment: contrasts over depth with their null, matching heads, items, binding."""

from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE, VALUE, add_curve, add_line, add_profile, blank, error_bars
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go


def alignment_figures(findings: Findings) -> tuple[Figure, ...]:
    """Contrast over depth and by head; items and binding where they are defined."""
    tables = findings.tables
    figures = [
        Figure(
            "contrast", "Selection by content, over depth",
            "How much more attended keys outweigh the others than with shuffled keys (another prompt's). At 0, content "
            "does not decide which keys are selected. Orange: without the first position.",
            _gains(tables["by_layer"]), "by_layer",
        ),
        Figure(
            "matching", "Selection by content, head by head",
            "One square per head: the contrast in log2 weight minus that with shuffled keys. Blue heads match content, "
            "red heads avoid it, white heads equal the null.",
            _heads(tables["by_head"]), "by_head",
        ),
    ]  # fmt: skip
    if "items" in tables:
        reading = (
            "One dot per head. Below the dashed line (uniform attention over the items), a head favours likely items; "
            "near 0, its attention equals the posterior. Grey bars are the null: items relabelled at random."
        )
        title = "Attention compared with the exact posterior"
        figures.append(Figure("posterior", title, reading, _items(tables["items"]), "items"))
    if "binding" in tables:
        reading = (
            "Near 1, the key at a value position encodes the token before it; grey is the null, with tokens renamed."
        )
        plot = _curve(tables["binding"], "binding", "share of key variance explained")
        title = "Binding: does the key of a value encode the token before it?"
        figures.append(Figure("binding", title, reading, plot, "binding"))
    return tuple(figures)


def _gains(table: Table) -> "go.Figure":
    if "logit_gain" not in table:  # records of earlier versions
        return _curve(table, "logit", "attended minus unattended, log2 weight (bits)")
    plot = blank("layer", "gain of the contrast in log2 weight (bits)")
    add_line(plot, table["layer"], np.zeros(table.n_rows), "null: shuffled keys")
    add_curve(plot, table["layer"], table, "logit_no_first_gain", "without the first position", PALETTE[1], "dash")
    add_curve(plot, table["layer"], table, "logit_gain", "measured", VALUE)
    return plot


def _curve(table: Table, name: str, title: str) -> "go.Figure":
    plot = blank("layer", title)
    add_profile(plot, table, "layer", name)
    plot.update_yaxes(rangemode="tozero")
    return plot


def _heads(table: Table) -> "go.Figure":
    n_heads = int(table["head"].max()) + 1
    gain = (table["logit"] - table["logit_null"]).reshape(-1, n_heads).T
    most = float(np.nanmax(np.abs(gain))) if np.isfinite(gain).any() else 1.0
    plot = blank("layer", "head")
    plot.add_heatmap(z=gain, colorscale="RdBu", zmin=-most, zmax=most, colorbar_title="bits",
                     hovertemplate="layer %{x} head %{y}: %{z:.3g} bits<extra></extra>")  # fmt: skip
    return plot


def _items(table: Table) -> "go.Figure":
    plot = blank("layer.head", "KL(posterior || attention) (bits)")
    heads = [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)]
    for name, label, colour, symbol in (
        ("posterior_kl_null", "null: items relabelled", NULL, "line-ew-open"),
        ("posterior_kl", "measured", VALUE, "circle"),
    ):
        bars = error_bars(table, name, colour)
        plot.add_scatter(
            x=heads, y=table[name], error_y=bars, name=label, mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 8},
        )  # fmt: skip
    add_line(plot, heads, table["posterior_kl_uniform"], "uniform attention", "dash", PALETTE[1])
    plot.update_xaxes(type="category")
    return plot
