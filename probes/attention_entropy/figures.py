"""Figures of the attention entropy: the curve over depth with its references, and every head on its own."""

from typing import TYPE_CHECKING

from interp.drawing import NULL, PALETTE, VALUE, add_curve, blank
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PLACES = {"scored": "the scored positions", "all": "all positions"}
_LINES = (
    ("uniform", "null: uniform row", NULL, "dash"),
    ("other_keys", "null: shuffled keys", PALETTE[1], "dot"),
    ("no_first", "without the first position", PALETTE[2], "dashdot"),
    ("entropy", "entropy", VALUE, "solid"),
)
_CURVE_READING = (
    "Blue falls where attention narrows. The gap between blue and orange (shuffled keys: another prompt's keys at the "
    "same positions) is due to this prompt's content. Grey is uniform attention."
)
_HEADS_READING = (
    "One square per head: dark heads attend to a single key; yellow, the end of the scale, is the null of uniform "
    "attention. Layers differ only if they do so by more than the heads within a layer."
)


def entropy_figures(findings: Findings) -> tuple[Figure, ...]:
    """For each kind of position the curve and the heads."""
    figures: list[Figure] = []
    by_place = (findings.tables[name].groups("positions") for name in ("by_layer", "by_head"))
    for (where, layers), (_, heads) in zip(*by_place, strict=True):
        place = _PLACES[where]
        figures += [
            Figure(
                f"entropy_{where}", f"Attention entropy over depth, {place}", _CURVE_READING, _curve(layers), "by_layer"
            ),
            Figure(f"heads_{where}", f"Entropy of every head, {place}", _HEADS_READING, _heads(heads), "by_head"),
        ]
    return tuple(figures)


def _curve(table: Table) -> "go.Figure":
    plot = blank("layer", "attention entropy (bits)")
    for name, label, colour, dash in _LINES:
        add_curve(plot, table["layer"], table, name, label, colour, dash)
    plot.update_yaxes(rangemode="tozero")
    return plot


def _heads(table: Table) -> "go.Figure":
    n_heads = int(table["head"].max()) + 1
    plot = blank("layer", "head")
    plot.add_heatmap(
        z=table["entropy"].reshape(-1, n_heads).T, colorscale="Cividis", zmin=0, zmax=float(table["uniform"].max()),
        colorbar_title="bits", hovertemplate="layer %{x} head %{y}: %{z:.3g} bits<extra></extra>",
    )  # fmt: skip
    return plot
