"""The figures of the study `sticky_chain`, from its findings alone."""

from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE, VALUE, add_band, blank, error_bars
from interp.findings import Findings
from interp.probe import Figure
from interp.statistics.intervals import t_half_width
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST = 2.0
"""The top of the loss curves, in times what the true chain loses: some arms diverge to thousands."""

_PUBLISHED = ("sgd", "w_v", "w_o", "w_qk", "w_vo", "all")


def sticky_figures(findings: Findings) -> tuple[Figure, ...]:
    """Loss curves of the published arms with their controls, of the other rules, and speed-ups."""
    arms, curves = findings.tables["arms"], findings.tables["curves"]
    names = [str(name) for name in arms["arm"]]
    published = [name for name in names if name in _PUBLISHED]
    others = ["sgd", *(name for name in names if name not in _PUBLISHED)]
    return (
        _curves(curves, arms, published, "controls", "The larger rate, on each matrix in turn"),
        _curves(curves, arms, others, "rules", "Other rates, Adam and a closed-form M-step"),
        _speedups(arms),
    )


def _curves(curves: Table, arms: Table, names: list[str], name: str, title: str) -> Figure:
    plot = blank("steps", "loss (bits)")
    for i, arm in enumerate(names):
        mine = curves.where((curves["arm"] == arm) & (curves["step"] > 0))
        steps = np.unique(mine["step"])
        losses = mine["loss_bits"].reshape(len(steps), -1)
        fresh = mine["fresh_loss_bits"].reshape(len(steps), -1).mean(axis=1)
        colour = PALETTE[i % len(PALETTE)]
        add_band(plot, steps, _t_band(losses), colour)
        line = {"color": colour, "dash": "solid" if i < len(PALETTE) else "longdash"}
        plot.add_scatter(x=steps, y=losses.mean(axis=1), mode="lines", name=arm, line=line)
        plot.add_scatter(
            x=steps, y=fresh, mode="lines", name=f"{arm}, another sequence", line={"color": colour, "dash": "dot"},
            showlegend=False,
        )  # fmt: skip
    last, (end, chain) = np.array([1, curves["step"].max()]), _levels(arms)
    for level, words, dash in ((end, "plain descent's end", "dash"), (chain, "the true chain", "solid")):
        plot.add_scatter(
            x=last, y=[level, level], mode="lines", name=words, line={"color": NULL, "dash": dash}, hoverinfo="name"
        )
    plot.update_xaxes(type="log")
    top = _MOST * chain
    plot.update_yaxes(range=[0, top])
    reading = (
        "Mean training loss over seeds with its 95 % t band; dotted, without a band, the same heads on a sequence that "
        "was not trained on. Grey: dashed the loss that plain descent ends at, the threshold of every speed-up; solid "
        "what the true chain loses on the training sequences. A coloured solid line below that has learnt noise. "
        f"Losses above {top:.1f} bits, twice the chain's, are left to the table."
    )
    return Figure(name, title, reading, plot, "curves")


def _levels(arms: Table) -> tuple[float, float]:
    """Plain descent's mean final loss, and the true chain's on the same symbols."""
    base = arms["arm"] == "sgd"
    return float(arms["loss_bits"][base][0]), float((arms["loss_bits"] - arms["excess_bits"])[base][0])


def _t_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, half = values.mean(axis=1), t_half_width(values)
    return mean - half, mean + half


def _speedups(arms: Table) -> Figure:
    mine = arms.where((arms["arm"] != "sgd") & np.isfinite(arms["paired"]))
    mine = mine.where(np.argsort(mine["paired"], kind="stable"))
    plot: go.Figure = blank("speed-up over plain descent", "")
    place = np.arange(mine.n_rows)
    for column, words, colour, shift in (
        ("paired", "paired by seed", VALUE, -0.12), ("speedup", "as published", PALETTE[1], 0.12)
    ):  # fmt: skip
        bars = error_bars(mine, column, colour)
        plot.add_scatter(
            x=mine[column], y=place + shift, mode="markers", name=words, marker={"color": colour, "size": 9},
            error_x=bars,
        )  # fmt: skip
    plot.add_scatter(
        x=[1, 1], y=[-0.5, mine.n_rows - 0.5], mode="lines", name="plain descent", line={"color": NULL, "dash": "dash"}
    )
    plot.update_xaxes(type="log")
    plot.update_yaxes(tickmode="array", tickvals=place, ticktext=[str(name) for name in mine["arm"]])
    reading = (
        "Steps that plain descent takes to its final loss over those an arm takes, with 95 % t intervals over seeds. "
        "Arms that some seed never brought there are left out. If the gain of w_v came from what values are, w_o and "
        "w_qk would lie left of it; if it is the larger rate, every arm with one gains."
    )
    return Figure("speedups", "Speed-up of every arm", reading, plot, "arms")
