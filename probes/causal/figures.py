"""Figures of the causal probe."""

from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE, VALUE, add_curve, add_null_band, blank, error_bars, faded, limit_r2
from interp.findings import Findings
from interp.probe import Figure

from ..measures.target import Target
from .quantities import READOUTS

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.table import Table

_WORDS = {
    "kl": "prediction", "entropy_moved": "entropy moved", "entropy_change": "entropy change",
    "posterior_kl": "KL from exact", "entropy_error": "entropy error", "loss": "loss", "later_r2": "R² further up",
    "later_axis": "axis further up", "sula_kl": "KL of labels", "slope": "slope of labels",
}  # fmt: skip
_OTHERS = PALETTE[1]
_MAX_SHOWN = 200
"""Controls drawn as points for a readout at most."""


def causal_figures(findings: Findings) -> tuple[Figure, ...]:
    """The dose curve, the axis among its controls in KL and on every readout, and where else a cut would tell."""
    if "effects" not in findings.tables:
        return ()
    target = Target.of(findings.tables["effects"])
    figures = [
        _among_controls(findings, target),
        _dose_curve(findings),
        _by_readout(findings, target),
        _conditions(findings),
    ]
    if "later_layers" in findings.tables:
        figures.append(_later(findings, target))
    return tuple(figures)


def _primary(findings: Findings) -> str:
    return str(findings.tables["effects"]["layers"][0])


def _among_controls(findings: Findings, target: Target) -> Figure:
    """Histogram of the controls' KL with the axis and the positive controls as lines."""
    layers = _primary(findings)
    controls = findings.tables["controls"]
    mine = (controls["layers"] == layers) & (controls["readout"] == "kl") & (controls["on"] == "the run's prompts")
    plot = blank("KL of the prediction from the unedited one (bits)", "controls")
    effects = controls["effect"][mine]
    plot.add_histogram(x=effects, name="null: matched controls", marker={"color": NULL}, xbins=_bins(effects))
    lines = {"axis": ("kl", VALUE), "ten principal axes": ("top_kl", _OTHERS)}
    lines["resampled heads"] = ("resample_kl", PALETTE[2])
    reach = 3 * max(float(np.max(effects, initial=0.0)), findings["kl"].value)
    beyond = []
    for name, (scalar, colour) in lines.items():
        if scalar in findings.scalars and findings[scalar].value <= reach:
            _line(plot, findings[scalar].value, name, colour)
        elif scalar in findings.scalars:
            beyond.append(f"{name} at {findings[scalar].value:.3g} bits")
    reading = (
        f"Grey: axes fitted in the same way to permuted {target.many} (for `pc1` random directions), with a change of "
        "the same size. An axis that is used for what it encodes lies to the right of all of them; one that is a trace "
        "lies among them or to the left."
        + (f" Far to the right, off this scale: {' and '.join(beyond)}." if beyond else "")
    )
    return Figure(
        "among_controls",
        f"Removing the axis at layer {layers}, and removing as much of anything",
        reading,
        plot,
        "controls",
    )


def _bins(effects: np.ndarray, n: int = 40) -> dict[str, float]:
    """Equal bins over the controls, however far off a positive control lies."""
    low, high = (float(effects.min()), float(effects.max())) if effects.size else (0.0, 1.0)
    size = (high - low) / n or 1.0
    return {"start": low, "end": high + size, "size": size}


def _line(plot: "go.Figure", x: float, name: str, colour: str) -> None:
    plot.add_scatter(x=[x, x], y=[0, 1], yaxis="y2", mode="lines", name=name, line={"color": colour, "width": 2.5})
    plot.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False})


def _dose_curve(findings: Findings) -> Figure:
    table = findings.tables["doses"]
    mine = table.where(table["layers"] == _primary(findings))
    plot = blank("dose (1: the axis is removed)", "KL (bits)")
    for i, (_, one) in enumerate(mine.where(mine["subject"] != "axis").groups("subject")):
        plot.add_scatter(
            x=one["dose"], y=one["kl"], mode="lines", line={"color": faded(NULL, 0.5), "width": 1},
            name="null: matched controls", legendgroup="controls", showlegend=i == 0,
        )  # fmt: skip
    axis = mine.where(mine["subject"] == "axis")
    add_curve(plot, axis["dose"], axis, "kl", "axis", VALUE)
    reading = (
        "At dose 0 nothing is done: all curves start at exactly 0. Where the blue curve stays in the grey cloud, the "
        "axis matters as much as any direction of its variance."
    )
    return Figure("dose_curve", "The more of it is removed", reading, plot, "doses")


def _by_readout(findings: Findings, target: Target) -> Figure:
    """Every readout on one scale: standard deviations of its controls."""
    effects, controls = findings.tables["effects"], findings.tables["controls"]
    plot = blank("standard deviations of the controls", "")
    labels = [_label(effects, i) for i in range(effects.n_rows)]
    for i, label in enumerate(labels):
        z = _scores(controls, effects, i)[:_MAX_SHOWN]
        plot.add_scatter(
            x=z, y=[label] * len(z), mode="markers", marker={"color": faded(NULL, 0.25), "size": 6},
            name="null: matched controls", legendgroup="controls", showlegend=i == 0,
        )  # fmt: skip
    bars = error_bars(effects, "z", VALUE)
    plot.add_scatter(
        x=effects["z"], y=labels, mode="markers", marker={"color": VALUE, "size": 10}, name="axis", error_x=bars,
        customdata=[target.say(READOUTS[name][1]) for name in effects["readout"]],
        hovertemplate="%{customdata}<br>%{x:.3g} standard deviations<extra></extra>",
    )  # fmt: skip
    plot.update_yaxes(autorange="reversed")
    reading = (
        "Each row is one thing that the cut may change (hover says which): blue the axis with its interval over "
        "prompts, grey each control among the others. Only the first row was named beforehand."
    )
    return Figure("by_readout", "The axis among its controls, on every readout", reading, plot, "effects")


def _label(effects: "Table", i: int) -> str:
    where = "" if effects["on"][i] == "the run's prompts" else f" on {effects['on'][i]}"
    layer = f", layer {effects['layers'][i]}" if len(np.unique(effects["layers"])) > 1 else ""
    return f"{_WORDS[effects['readout'][i]]}{where}{layer}"


def _scores(controls: "Table", effects: "Table", i: int) -> np.ndarray:
    mine = np.ones(controls.n_rows, dtype=bool)
    for name in ("layers", "on", "readout"):
        mine &= controls[name] == effects[name][i]
    return controls["z"][mine]


def _conditions(findings: Findings) -> Figure:
    """KL against removed variance: is the axis above the line that all directions lie on?"""
    table = findings.tables["conditions"]
    kept = (table["layers"] == _primary(findings)) & (table["edit"] == "removed") & (table["dose"] == 1)
    mine = table.where(kept)
    plot = blank("share of the variance that is removed", "KL (bits)")
    # The axis comes last, over the others: it is one point among many.
    kinds = {"principal": PALETTE[3], "gaussian": NULL, "top ten": _OTHERS, "resample": PALETTE[2], "axis": VALUE}
    words = {
        "principal": "principal axes", "gaussian": "null: directions distributed as the data",
        "resample": "resampled heads", "top ten": "ten principal axes",
    }  # fmt: skip
    for kind, colour in kinds.items():
        one = mine.where(np.array([str(s).startswith(kind) for s in mine["subject"]], dtype=bool))
        plot.add_scatter(
            x=one["variance_share"], y=one["kl"], text=one["subject"], mode="markers", name=words.get(kind, kind),
            marker={"color": colour, "size": 8} | ({"size": 14, "symbol": "diamond"} if kind == "axis" else {}),
            error_y=error_bars(one, "kl", colour),
            hovertemplate="%{text}: %{y:.3g} bits<extra></extra>",
        )  # fmt: skip
    plot.update_xaxes(type="log")
    plot.update_yaxes(type="log")
    reading = (
        "What a cut costs rises with what it takes out, whatever the direction; the axis says something only by "
        "where it lies (the diamond) beside others of its variance. Both scales are logarithmic."
    )
    return Figure("removed_variance", "What other cuts cost", reading, plot, "conditions")


def _later(findings: Findings, target: Target) -> Figure:
    table = findings.tables["later_layers"]
    mine = table.where(table["layers"] == _primary(findings))
    plot = blank("later layer", f"held-out R² of {target.words} (unedited)")
    add_null_band(plot, mine["later_layer"], (mine["r2_null_low"], mine["r2_null_high"]))
    bars = error_bars(mine, "r2_null", NULL)
    for column, name, colour, dash in (
        ("unedited", "unedited", PALETTE[2], "dot"), ("r2_null", "null: matched controls removed", NULL, "dash"),
        ("r2", "axis removed", VALUE, "solid"),
    ):  # fmt: skip
        plot.add_scatter(
            x=mine["later_layer"], y=mine[column], name=name, mode="lines+markers",
            line={"color": colour, "dash": dash}, error_y=bars if column == "r2_null" else None,
        )  # fmt: skip
    cut = limit_r2(plot, mine["unedited"], mine["r2"], mine["r2_null"])
    reading = (
        "Ridge is refitted to each later layer under the edit: where the blue curve stays at the dotted one, "
        f"{target.words} is predicted there without the axis; grey, without as much of anything.{cut}"
    )
    return Figure("later_layers", f"Can later layers still predict {target.words}?", reading, plot, "later_layers")
