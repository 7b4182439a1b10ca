"""The figures of the orthogonality probe, from its findings alone."""

import numpy as np

from interp.drawing import NULL, PALETTE, VALUE, add_band, blank
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

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
    if "w_qk_spectrum" in findings.tables:
        drawn.append(_spectrum(findings.tables["w_qk_spectrum"]))
    return tuple(drawn)


def _cosines(table: Table):
    plot = blank("layer", "mean |cos|")
    layer = table["layer"]
    series = (("abs", "raw", _BEFORE_CENTRING, "dash"), ("abs_centred", "centred", _AFTER_CENTRING, "dot"))
    for column, label, colour, dash in series:
        add_band(plot, layer, (table[f"{column}_null_low"], table[f"{column}_null_high"]), NULL)
        grey = {"color": NULL, "dash": dash}
        plot.add_scatter(x=layer, y=table[f"{column}_null"], name=f"null, {label}", mode="lines", line=grey)
        for low, high in ((f"{column}_low", f"{column}_high"), (f"{column}_heads_low", f"{column}_heads_high")):
            if low in table:
                add_band(plot, layer, (table[low], table[high]), colour)
        plot.add_scatter(
            x=layer, y=table[column], name=label, mode="lines+markers", line={"color": colour}, marker={"size": 6}
        )
    plot.update_yaxes(rangemode="tozero")
    return plot


def _spectrum(table: Table) -> Figure:
    """One line a layer over the null of one head."""
    plot = blank("singular direction of W_QK", "share of Σσ²")
    layers = np.unique(table["layer"])
    null = table.where(table["layer"] == layers[0])
    add_band(plot, null["axis"], (null["share_null_low"], null["share_null_high"]), NULL)
    grey = {"color": NULL, "dash": "dash"}
    plot.add_scatter(x=null["axis"], y=null["share_null"], name="null: Gaussian weights", mode="lines", line=grey)
    for i, layer in enumerate(layers):
        mine, line = table.where(table["layer"] == layer), {"color": PALETTE[i % len(PALETTE)]}
        plot.add_scatter(x=mine["axis"], y=mine["share"], name=f"layer {layer}", mode="lines", line=line)
    plot.update_yaxes(type="log")
    reading = (
        "Mean over the heads of a layer. A line that starts above the grey one and falls below it belongs to heads "
        "that compare tokens along few directions, whatever basis their keys are written in."
    )
    return Figure("w_qk_spectrum", "Directions of the query-key form", reading, plot, "w_qk_spectrum")
