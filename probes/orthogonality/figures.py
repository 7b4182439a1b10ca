"""The figures of the orthogonality probe, from its findings alone."""

from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import PALETTE, VALUE, add_band, add_curve, add_null_curve, add_slider, blank, coloured
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BEFORE_CENTRING, _AFTER_CENTRING = VALUE, PALETTE[1]

_DEFINITIONS = {
    "wk_columns": (
        "Columns of W_K",
        "Mean over the heads of a layer; the thin band holds the middle 80 % of its heads. Above the grey band, "
        "columns are more parallel than random directions of the same dimension.",
    ),
    "token_keys": (
        "Keys of different tokens",
        "Keys at one position, heads together. A direction shared by all tokens lifts the blue line; orange is what is "
        "left without it. Only below its own grey band would keys be closer to orthogonal than chance.",
    ),
    "head_keys": (
        "Keys of the heads of a layer",
        "Mean over prompts with its 95 % interval; the grey band is what heads turned at random give. Orange: every "
        "head's mean key is taken off first.",
    ),
}


def figures(findings: Findings) -> tuple[Figure, ...]:
    """One figure for each definition that was measured, and the spectrum of W_QK."""
    drawn = [
        Figure(name, f"{title}: |cos| by depth", reading, _cosines(findings.tables[name]), name)
        for name, (title, reading) in _DEFINITIONS.items()
        if name in findings.tables
    ]
    if "token_key_matrix" in findings.tables:
        reading = (
            "Each square is the cosine of the keys of two tokens at equal positions; right, the null: as many random "
            "directions of the same dimension. Keys as orthogonal as chance leave the left as pale as the right."
        )
        table = findings.tables["token_key_matrix"]
        title = f"Which tokens' keys are near to which, layer {table['layer'][0]}"
        drawn.append(Figure("token_key_matrix", title, reading, _matrices(table, "token"), "token_key_matrix"))
    if "head_key_matrix" in findings.tables:
        reading = (
            "Each square is the mean cosine of the keys of two heads of one layer at one row; right, the null: every "
            "head turned at random. The slider moves through the layers."
        )
        plot = _matrices(findings.tables["head_key_matrix"], "kv_head")
        drawn.append(Figure("head_key_matrix", "Which heads' keys are near to which", reading, plot, "head_key_matrix"))
    if "w_qk_spectrum" in findings.tables:
        drawn.append(_spectrum(findings.tables["w_qk_spectrum"]))
    return tuple(drawn)


def _cosines(table: Table):
    plot = blank("layer", "mean |cos|")
    layer = table["layer"]
    series = (("abs", "raw", _BEFORE_CENTRING, "dash"), ("abs_centred", "centred", _AFTER_CENTRING, "dot"))
    for column, label, colour, dash in series:
        add_null_curve(plot, layer, table, column, f"null, {label}", dash)
        if f"{column}_heads_low" in table:
            add_band(plot, layer, (table[f"{column}_heads_low"], table[f"{column}_heads_high"]), colour)
        add_curve(plot, layer, table, column, label, colour)
    plot.update_yaxes(rangemode="tozero")
    return plot


def _matrices(table: Table, of: str) -> "go.Figure":
    """The cosines beside those of the null, layer by layer."""
    from plotly.subplots import make_subplots

    layers, names = np.unique(table["layer"]), [str(name) for name in dict.fromkeys(table[of].tolist())]
    plot = make_subplots(1, 2, subplot_titles=["keys", "null"], shared_yaxes=True, horizontal_spacing=0.06)
    for layer in layers:
        mine = table.where(table["layer"] == layer)
        for column, name in (("cos", "keys"), ("cos_null", "null")):
            plot.add_heatmap(
                x=names, y=names, z=mine[column].reshape(len(names), -1), coloraxis="coloraxis", name=name,
                hovertemplate="%{y}, %{x}: cos %{z:.3f}<extra>%{fullData.name}</extra>",
                row=1, col=1 + (name == "null"),
            )  # fmt: skip
    words = {"token": "token id", "kv_head": "KV head"}[of]
    plot.update_layout(template="none", coloraxis={"colorscale": "RdBu", "cmin": -1, "cmax": 1, "reversescale": True,
                                                   "colorbar": {"title": {"text": "cos"}}})  # fmt: skip
    plot.update_xaxes(type="category", title_text=words, showgrid=False)
    plot.update_yaxes(type="category", autorange="reversed", showgrid=False)
    plot.update_yaxes(title_text=words, col=1)
    if len(layers) > 1:
        shown = [[bool(other == layer) for other in layers for _ in range(2)] for layer in layers]
        add_slider(plot, [str(layer) for layer in layers], shown, 0)
    return plot


def _spectrum(table: Table) -> Figure:
    """One line a layer over the null of one head."""
    plot = blank("singular direction of W_QK", "share of Σσ²")
    null = table.where(table["layer"] == table["layer"][0])
    add_null_curve(plot, null["axis"], null, "share", "null: Gaussian weights")
    for layer, mine, colour in coloured(table, "layer"):
        plot.add_scatter(x=mine["axis"], y=mine["share"], name=f"layer {layer}", mode="lines", line={"color": colour})
    plot.update_yaxes(type="log")
    reading = (
        "Mean over the heads of a layer. A line that starts above the grey one and falls below it belongs to heads "
        "that compare tokens along few directions, whatever basis their keys are written in."
    )
    return Figure("w_qk_spectrum", "Directions of the query-key form", reading, plot, "w_qk_spectrum")
