"""Figures of a training: the manifold beside the attention map at every checkpoint, and what settles when."""

from typing import TYPE_CHECKING, Any

import numpy as np

from interp.drawing import ENTROPY_SCALE, NULL, PALETTE, add_band, add_null_curve, blank, coloured, places
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COURSES = (
    ("frame_tv", "attention (frame)", PALETTE[0], "solid"),
    ("value_distance", "values", PALETTE[2], "solid"),
    ("entropy_error", "entropy error", PALETTE[1], "solid"),
    ("loss", "loss", PALETTE[1], "solid"),
    ("output", "output", PALETTE[3], "dash"),
)
"""Columns of `by_step` that are distances from the end, or have it taken off."""

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
_MAX_TICKS = 9


def dynamics_figures(findings: Findings) -> tuple[Figure, ...]:
    """The pictures first, then courses, layers, refinement, errors and updates; nothing without checkpoints."""
    if "by_step" not in findings.tables:
        return ()
    tables = findings.tables
    exchanged = (_exchanged(tables["exchange"]),) if "exchange" in tables else ()
    return (
        Figure(
            "unfurling", "The manifold unfurling beside the attention map",
            "Move through the checkpoints. Left: values on the first plane of the end's, coloured by entropy; right: "
            "attention of one sequence, brighter for more weight. Where the right stands still while the left still "
            "spreads and orders itself, the frame came before precision. No null is drawn: the next figures have it.",
            _unfurling(tables["points"], tables["attention"]), "points",
        ),
        Figure(
            "courses", "What settles first",
            "Distance from the end of the training, relative to the first checkpoint, with 95 % bands over prompts. "
            "The line that stays below the dotted one first has settled first. Errors in bits fall as the square of a "
            "distance: compare attention with the output, which is on its scale. No null is drawn: the exchange "
            "of patterns tests the order.",
            _courses(findings), "by_step",
        ),
        Figure(
            "frame_by_layer", "The frame, layer by layer",
            "Total variation of attention to the end's. The null, dashed, is drawn where sequences are of one length: "
            "to the end's attention on another sequence, all layers together; what lies below it is about this one.",
            _by_layer(tables["by_step_layer"], tables["by_step"]), "by_step_layer",
        ),
        Figure(
            "refinement", "How the values refine",
            "Choose a number. Blue with its band is the checkpoint, grey dashed what structureless values or exchanged "
            "entropies give.",
            _refinement(tables["by_step"]), "by_step",
        ),
        Figure(
            "errors", "Precision",
            "Errors of the prediction with 95 % bands over prompts; those in bits against the exact posterior, or on "
            "the text. No null is drawn: step 0, where it is among the checkpoints, has learnt nothing.",
            _errors(tables["by_step"]), "by_step",
        ),
        Figure(
            "updates", "Which weights still move",
            "Relative change since the checkpoint before, over all layers. Where W_QK lies below the dotted line, it "
            "moves less than queries and keys would that move as far as the values: routing has come to rest first.",
            _updates(tables["updates"]), "updates",
        ),
        *exchanged,
    )  # fmt: skip


def _exchanged(table: Table) -> Figure:
    plot = _over_steps(table["step"], "error (bits)")
    lines = (("own", "the checkpoint's own", NULL, "dot"),
             ("final_with_patterns", "end with the checkpoint's attention", PALETTE[0], "solid"),
             ("with_final_patterns", "checkpoint with the end's attention", PALETTE[2], "solid"))  # fmt: skip
    for column, name, colour, dash in lines:
        _line(plot, table["step"], table, column, name, colour, dash)
    plot.update_yaxes(type="log")
    reading = (
        "Attention patterns are exchanged between each checkpoint and the end. Where the line of the end with the "
        "checkpoint's attention lies below the other one, attention is further than the rest; above it, the reverse. "
        "The null is that both lie on one another: the table has the paired difference."
    )
    return Figure("exchange", "What the attention of a checkpoint does", reading, plot, "exchange")


def _along(steps: np.ndarray) -> np.ndarray:
    """Where a step stands on the axis: log2(1 + step), so that step 0 has a place."""
    return np.log2(1 + np.asarray(steps, dtype=np.float64))


def _over_steps(steps: np.ndarray, axis: str) -> "go.Figure":
    plot = blank("training step (log axis)", axis)
    ticks = np.unique(steps)
    if len(ticks) > _MAX_TICKS:
        ticks = ticks[np.linspace(0, len(ticks) - 1, _MAX_TICKS).round().astype(int)]
    plot.update_xaxes(tickvals=_along(ticks), ticktext=[str(int(step)) for step in ticks])
    return plot


def _line(plot: "go.Figure", steps: np.ndarray, table: Table, column: str, name: str, colour: str, dash: str) -> None:
    add_band(plot, _along(steps), (table[f"{column}_low"], table[f"{column}_high"]), colour)
    plot.add_scatter(
        x=_along(steps), y=table[column], name=name, mode="lines+markers", line={"color": colour, "dash": dash},
        customdata=steps, hovertemplate="step %{customdata}: %{y:.4g}<extra>%{fullData.name}</extra>",
    )  # fmt: skip


def _unfurling(points: Table, attention: Table) -> "go.Figure":
    """Two panels and a frame for every checkpoint; axes stand still, so that what moves is the model."""
    import plotly.graph_objects as go

    plot = blank("PC1 of the end (activation)", "PC2 of the end (activation)")
    steps: list[int] = np.unique(points["step"]).tolist()
    frames = [_frame(step, points, attention) for step in steps]
    for trace in frames[-1]:
        plot.add_trace(trace)
    plot.update_traces(_looks(points.where(points["step"] == steps[-1])), selector=0)
    plot.frames = [go.Frame(name=str(step), data=data, traces=[0, 1]) for step, data in zip(steps, frames, strict=True)]
    rows = np.unique(attention["row"])
    plot.update_layout(
        xaxis={"domain": [0, 0.46], "range": _range(points["pc1"])}, yaxis={"range": _range(points["pc2"])},
        xaxis2={"domain": [0.58, 1], "anchor": "y2", "title": {"text": "key position (tokens)"}, "showgrid": False},
        yaxis2={
            "anchor": "x2", "showgrid": False, "autorange": "reversed", "type": "category",
            "categoryarray": [str(row) for row in rows],
            "title": {"text": "query position (tokens)" if attention.units["row"] == "tokens" else "layer"},
        },
        sliders=[_scrubber([str(step) for step in steps])],
    )  # fmt: skip
    return plot


def _frame(step: int, points: Table, attention: Table) -> "list[go.Scatter | go.Heatmap]":
    import plotly.graph_objects as go

    mine, seen = points.where(points["step"] == step), attention.where(attention["step"] == step)
    scatter = go.Scatter(x=mine["pc1"], y=mine["pc2"], mode="markers", showlegend=False)
    rows, keys = np.unique(attention["row"]), np.arange(int(attention["key"].max(initial=-1)) + 1)
    weights = np.full((len(rows), len(keys)), np.nan)
    weights[np.searchsorted(rows, seen["row"]), seen["key"]] = seen["weight"]
    heat = go.Heatmap(
        z=weights, x=keys, y=[str(row) for row in rows], zmin=0, zmax=1, colorscale="Cividis", showscale=False,
        xaxis="x2", yaxis="y2", hovertemplate="%{y} → %{x}: %{z:.2f}<extra></extra>",
    )  # fmt: skip
    return [scatter, heat]


def _looks(points: Table) -> dict[str, object]:
    """What the points keep from checkpoint to checkpoint: they are the same rows, so a frame only moves them."""
    bits = points["entropy_bits"]
    return {
        "customdata": [[where, float(b)] for where, b in zip(places(points), bits, strict=True)],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]:.2f} bits<extra></extra>",
        "marker": {
            "color": bits, "colorscale": ENTROPY_SCALE, "cmin": float(bits.min()), "cmax": float(bits.max()),
            "size": 7, "opacity": 0.8, "colorbar": {"title": {"text": "entropy<br>(bits)"}},
        },
    }  # fmt: skip


def _range(values: np.ndarray) -> list[float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 1.0
    return [low - margin, high + margin]


def _scrubber(names: list[str]) -> dict[str, object]:
    options = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    steps = [{"method": "animate", "args": [[name], options], "label": name} for name in names]
    return {"active": len(names) - 1, "currentvalue": {"prefix": "step "}, "pad": {"t": 40}, "steps": steps}


def _courses(findings: Findings) -> "go.Figure":
    table = findings.tables["by_step"]
    steps = table["step"]
    plot = _over_steps(steps, "distance from the end, relative to the first")
    for column, name, colour, dash in _COURSES:
        if column in table and not np.isnan(table[column]).any():
            first, last = float(table[column][0]), float(table[column][-1])
            base = 0.0 if column in ("frame_tv", "value_distance", "output") else last
            if first != base:
                ends = ("", "_low", "_high")
                scaled = {column + end: (table[column + end] - base) / (first - base) for end in ends}
                _line(plot, steps, Table(scaled, {column: "1"}), column, name, colour, dash)
    plot.add_hline(y=float(findings.arrays["epsilon"]), line={"color": NULL, "dash": "dot", "width": 1})
    return plot


def _by_layer(table: Table, overall: Table) -> "go.Figure":
    plot = _over_steps(table["step"], "total variation (fraction)")
    for layer, mine, colour in coloured(table, "layer"):
        _line(plot, mine["step"], mine, "frame_tv", f"layer {layer}", colour, "solid")
    if not np.isnan(overall["frame_tv_exchanged"]).all():
        _line(plot, overall["step"], overall, "frame_tv_exchanged", "null: another sequence", NULL, "dash")
    plot.update_yaxes(rangemode="tozero")
    return plot


def _refinement(table: Table) -> "go.Figure":
    names = [name for name in _REFINED if name in table and np.isfinite(table[name]).any()]
    steps = table["step"]
    plot = _over_steps(steps, _REFINED[names[0]])
    for name in names:
        _line(plot, steps, table, name, "measured", PALETTE[0], "solid")
        add_null_curve(plot, _along(steps), table, name)
    traces: Any = plot.data
    per = len(traces) // len(names)
    shown = [[n == i for n in range(len(names)) for _ in range(per)] for i in range(len(names))]
    for i, visible in enumerate(shown[0]):
        plot.update_traces(visible=visible, selector=i)
    buttons = [
        {
            "method": "update", "label": name.replace("_", " "),
            "args": [{"visible": visible}, {"yaxis.title.text": _REFINED[name]}],
        }
        for name, visible in zip(names, shown, strict=True)
    ]  # fmt: skip
    plot.update_layout(updatemenus=[{"active": 0, "buttons": buttons, "name": "number"}])
    return plot


def _errors(table: Table) -> "go.Figure":
    plot = _over_steps(table["step"], "error (bits)")
    for i, (name, words) in enumerate((("entropy_error", "entropy error"), ("kl", "KL"), ("loss", "loss"))):
        if name in table:
            _line(plot, table["step"], table, name, words, PALETTE[i], "solid")
    plot.update_yaxes(type="log")
    return plot


def _updates(table: Table) -> "go.Figure":
    steps = np.unique(table["step"])
    plot = _over_steps(steps, "relative change, mean over layers (1)")
    lines = (("w_qk", "W_QK", PALETTE[0], "solid"), ("w_v", "W_V", PALETTE[2], "solid"),
             ("w_q", "W_Q", PALETTE[5], "dash"), ("w_k", "W_K", PALETTE[3], "dash"),
             ("w_qk_expected", "null: W_QK at the pace of W_V", NULL, "dot"))  # fmt: skip
    for column, name, colour, dash in lines:
        means = np.array([table[column][table["step"] == step].mean() for step in steps])
        plot.add_scatter(
            x=_along(steps), y=means, name=name, mode="lines+markers", line={"color": colour, "dash": dash},
            customdata=steps, hovertemplate="to step %{customdata}: %{y:.3g}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    plot.update_yaxes(type="log")
    return plot
