"""The figures of the orthogonality probe, from its findings alone."""

from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings
from interp.plotting import PALETTE, VALUE, Chart, add_slider
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DEFINITIONS = {
    "wk_columns": (
        "Columns of W_K",
        "Mean over the heads of a layer; the thin band holds the middle 80 % of its heads. Above the null "
        "band, columns are more parallel than random directions of the same dimension.",
    ),
    "token_keys": (
        "Keys of different tokens",
        "Keys at one position, all heads together. A direction that all tokens share raises the blue line; orange is "
        "without it. Keys are closer to orthogonal than chance only below their null band.",
    ),
    "head_keys": (
        "Keys of the heads of a layer",
        "Mean over prompts with its 95 % interval. The null: heads rotated at random. Orange: after the mean "
        "key of each head is subtracted.",
    ),
}
_MATRICES = {
    "token_key_matrix": (
        "Which tokens have similar keys, layer {layer}", "token", "token id",
        "Each square is the cosine of the keys of two tokens at equal positions. Right, the null: as many random "
        "directions of the same dimension. If keys are as orthogonal as chance, the left is as pale as the right.",
    ),
    "head_key_matrix": (
        "Which heads have similar keys", "kv_head", "KV head",
        "Each square is the mean cosine of the keys of two heads of one layer at one row. Right, the null: every head "
        "rotated at random. The slider moves through the layers.",
    ),
}  # fmt: skip


def orthogonality_figures(findings: Findings) -> tuple[Figure, ...]:
    """One figure for each definition that was measured, and the spectrum of W_QK."""
    drawn, tables = [], findings.tables
    for name, (title, reading) in _DEFINITIONS.items():
        if name in tables:
            drawn.append(Figure(name, f"{title}: |cos| by depth", reading, _cosines(tables[name]), name))
    for name, (title, of, words, reading) in _MATRICES.items():
        if name in tables:
            title = title.format(layer=tables[name]["layer"][0])
            drawn.append(Figure(name, title, reading, _matrices(tables[name], of, words), name))
    if "w_qk_spectrum" in tables:
        drawn.append(_spectrum(tables["w_qk_spectrum"]))
    return tuple(drawn)


def _cosines(table: Table) -> "go.Figure":
    chart = Chart(table, "layer", "layer", "mean |cos|")
    for column, label, colour, dash in (
        ("abs", "raw", VALUE, "dash"), ("abs_centred", "centred", PALETTE[1], "dot"),
    ):  # fmt: skip
        chart.null(column, f"null, {label}", dash)
        if f"{column}_heads_low" in table:
            chart.band((table[f"{column}_heads_low"], table[f"{column}_heads_high"]), colour)
        chart.curve(column, label, colour)
    chart.plot.update_yaxes(rangemode="tozero")
    return chart.plot


def _matrices(table: Table, of: str, words: str) -> "go.Figure":
    from plotly.subplots import make_subplots

    layers, names = np.unique(table["layer"]), [str(name) for name in dict.fromkeys(table[of].tolist())]
    plot = make_subplots(1, 2, subplot_titles=["keys", "null"], shared_yaxes=True, horizontal_spacing=0.06)
    for _, mine in table.groups("layer"):
        for i, (column, name) in enumerate((("cos", "keys"), ("cos_null", "null")), start=1):
            plot.add_heatmap(
                x=names, y=names, z=mine[column].reshape(len(names), -1), coloraxis="coloraxis", name=name,
                hovertemplate="%{y}, %{x}: cos %{z:.3f}<extra>%{fullData.name}</extra>", row=1, col=i,
            )  # fmt: skip
    scale = {"colorscale": "RdBu", "cmin": -1, "cmax": 1, "reversescale": True, "colorbar": {"title": {"text": "cos"}}}
    plot.update_layout(template="none", coloraxis=scale)
    plot.update_xaxes(type="category", title_text=words, showgrid=False)
    plot.update_yaxes(type="category", autorange="reversed", showgrid=False)
    plot.update_yaxes(title_text=words, col=1)
    if len(layers) > 1:
        shown = [[bool(other == layer) for other in layers for _ in range(2)] for layer in layers]
        add_slider(plot, [str(layer) for layer in layers], shown, 0)
    return plot


def _spectrum(table: Table) -> Figure:
    chart = Chart(table, "axis", "singular direction of W_QK", "share of Σσ²")
    chart.of(table.where(table["layer"] == table["layer"][0])).null("share", "null: Gaussian weights")
    for layer, mine, colour in chart.by("layer"):
        mine.line("share", f"layer {layer}", None, colour)
    chart.plot.update_yaxes(type="log")
    reading = (
        "Mean over the heads of a layer. A line that starts above the null and falls below it belongs "
        "to heads that compare tokens along few directions, in whatever basis."
    )
    return Figure("w_qk_spectrum", "Directions of the query-key form", reading, chart.plot, "w_qk_spectrum")
