"""Figures of the causal probe."""

import numpy as np

from interp.findings import Findings
from interp.formatting import MILLIONTHS, is_tiny, short
from interp.plotting import NULL, PALETTE, VALUE, Chart, error_bars
from interp.probe import Figure
from interp.table import Table

from ..measures.target import Target
from .tables import RUN

_N_BINS = 40


def causal_figures(findings: Findings) -> tuple[Figure, ...]:
    """The axis among its controls, and what later layers still predict."""
    if "effects" not in findings.tables:
        return ()
    tables, target = findings.tables, Target.of(findings.tables["effects"])
    layers = str(tables["effects"]["layers"][0])
    figures = [_among_controls(findings, layers, target)]
    if "later_layers" in tables:
        figures.append(_later(tables["later_layers"].where(tables["later_layers"]["layers"] == layers), target))
    return tuple(figures)


def _among_controls(findings: Findings, layers: str, target: Target) -> Figure:
    """Histogram of the controls' KL with the axis and the positive controls as lines."""
    controls, matching = findings.tables["controls"], findings.tables.get("matching")
    mine = (controls["layers"] == layers) & (controls["readout"] == "kl") & (controls["on"] == RUN)
    scale, unit = (1e6, MILLIONTHS) if is_tiny(findings["kl"].value) else (1.0, "bits")
    axis = f"KL of the prediction from the unedited one ({unit})"
    chart = Chart(controls, "effect", axis, "matched directions")
    effects = scale * controls["effect"][mine]
    low, high = (float(effects.min()), float(effects.max())) if effects.size else (0.0, 1.0)
    size = (high - low) / _N_BINS or 1.0  # equal bins over the controls, however far off a positive control lies
    bins = {"start": low, "end": high + size, "size": size}
    chart.plot.add_histogram(x=effects, name="null: matched directions", marker={"color": NULL}, xbins=bins)
    lines = {
        "the direction": ("kl", VALUE),
        "ten directions of largest variance, together": ("matched_top_kl", PALETTE[1]),
        "head outputs replaced by those of another prompt,": ("resample_kl", PALETTE[2]),
    }
    is_refit = matching is None or matching["matched_by"][0] == "refit"
    matched = f"directions fitted in the same way to shuffled {target.many}" if is_refit else "random directions"
    at = {name: scale * findings[scalar].value for name, (scalar, _) in lines.items() if scalar in findings.scalars}
    reach = 3 * max(float(np.max(effects, initial=0.0)), at["the direction"])
    beyond = []
    chart.plot.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False})
    for name, x in at.items():
        if x <= reach:
            line = {"color": lines[name][1], "width": 2.5}
            chart.plot.add_scatter(x=[x, x], y=[0, 1], yaxis="y2", mode="lines", name=name, line=line)
        else:
            beyond.append(f"{name} at {short(x / scale)} bits")
    ends = [x for x in (low, high, *at.values()) if x <= reach]  # with room, so that no line lies on the frame
    chart.plot.update_xaxes(range=[min(ends) - 2 * size, max(ends) + 2 * size])
    reading = (
        f"The null: removals of the same size along matched directions ({matched}). A line to the right of "
        "nearly all of them is a sign of use; to the left of them, nothing is decided. For scale: the ten directions "
        "of largest variance, all changed together by as much."
        + (f" Off this scale, far to the right: {' and '.join(beyond)}." if beyond else "")
    )
    title = "Removing the direction, compared with matched ones"
    return Figure("among_controls", title, reading, chart.plot, "controls")


def _later(table: Table, target: Target) -> Figure:
    chart = Chart(table, "later_layer", "later layer", f"held-out R² of {target.words} (unedited)")
    chart.null_band("r2")
    chart.line("unedited", "unedited", "dot", PALETTE[2], mode="lines+markers")
    bars = error_bars(table, "r2_null", NULL)
    chart.line("r2_null", "null: matched controls removed", error_y=bars, mode="lines+markers")
    chart.line("r2", "axis removed", "solid", VALUE, mode="lines+markers")
    cut = chart.limit_r2("unedited", "r2", "r2_null")
    reading = (
        "A ridge readout is fitted anew at each later layer, under the edit. Where the blue curve equals the dotted "
        f"one, {target.words} is still decodable without the axis. The null: removals of the same size.{cut}"
    )
    title = f"Can later layers still predict {target.words}?"
    return Figure("later_layers", title, reading, chart.plot, "later_layers")
