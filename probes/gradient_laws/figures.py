"""The figures of the study `gradient_laws`, from its findings alone."""

import numpy as np

from interp.drawing import NULL, VALUE, add_null_band, blank, coloured, error_bars, faded
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

_EXACT = 1e-17
"""Where a residual of exactly 0 is drawn on a log scale."""

_WORDS = {"queries_and_keys": "step on queries and keys", "model": "step on all weights"}


def gradient_figures(findings: Findings) -> tuple[Figure, ...]:
    """Residuals beside wrong laws, agreement by head, alignment with the weights, and the pairs behind agreement."""
    tables = findings.tables
    return (
        _laws(tables["laws"]), _by_head(tables["by_head"]), _alignment(tables["alignment"]), *_pairs(tables["pairs"]),
    )  # fmt: skip


def _laws(table: Table) -> Figure:
    plot = blank("relative residual", "")
    place = np.arange(table.n_rows)
    for column, words, colour in (
        ("residual", "the law", VALUE),
        ("wrong_law", "null: a law that is nearly right", NULL),
    ):
        plot.add_scatter(
            x=np.maximum(table[column], _EXACT), y=place, mode="markers", name=words,
            marker={"color": colour, "size": 10}, text=[f"{x:.2g}" for x in table[column]], hovertemplate="%{text}",
        )  # fmt: skip
    plot.update_xaxes(type="log", exponentformat="power")
    plot.update_yaxes(
        tickmode="array", tickvals=place, ticktext=[str(law) for law in table["law"]], autorange="reversed"
    )
    reading = (
        "Largest difference of autograd and law over all prompts, relative to the largest gradient. Rounding of "
        "float64 is near 1e-15; 0 is drawn at 1e-17. Grey: a law that leaves out one thing, at its smallest residual."
    )
    return Figure("laws", "Do the laws hold?", reading, plot, "laws")


def _by_head(table: Table) -> Figure:
    plot = blank("head", "attention that moved to better values (fraction)")
    steps = list(coloured(table, "step"))
    for i, (step, mine, colour) in enumerate(steps):
        x = mine["head"] + (i - (len(steps) - 1) / 2) * 0.2
        plot.add_scatter(
            x=x, y=mine["moved_null"], mode="markers", showlegend=i == 0, name="null: advantages permuted",
            marker={"color": NULL, "symbol": "line-ew-open", "size": 12},
            error_y=error_bars(mine, "moved_null", NULL, 6.0),
        )  # fmt: skip
        plot.add_scatter(
            x=x, y=mine["moved"], mode="markers", name=_WORDS[step], marker={"color": colour, "size": 9},
            error_y=error_bars(mine, "moved", colour),
        )  # fmt: skip
    plot.update_xaxes(dtick=1)
    plot.update_yaxes(range=[0, 1.02])
    reading = (
        "Of all attention that a step moves in a head, the share that grows at keys of positive advantage or shrinks "
        "at others, with 95 % intervals over prompts; grey: the same with advantages permuted within each row. A head "
        "inside its grey bar does not move where its advantages point."
    )
    return Figure("by_head", "Does attention move to better values?", reading, plot, "by_head")


def _alignment(table: Table) -> Figure:
    plot = blank("leading singular directions k", "alignment of the gradient (fraction)")
    for matrix, mine, colour in coloured(table, "matrix"):
        for head, one in mine.groups("head"):
            plot.add_scatter(
                x=one["k"], y=one["alignment"], mode="lines+markers", name=matrix, legendgroup=matrix,
                showlegend=bool(head == 0), line={"color": colour, "width": 1.5}, marker={"size": 6},
                error_y=error_bars(one, "alignment", colour),
                text=[f"head {head}"] * one.n_rows, hovertemplate="%{text}: %{y:.3f}",
            )  # fmt: skip
    null = table.where((table["matrix"] == table["matrix"][0]) & (table["head"] == 0))
    add_null_band(plot, null["k"], (null["null_low"], null["null_high"]), "null: k random directions")
    plot.update_xaxes(type="log", tickmode="array", tickvals=np.unique(table["k"]))
    plot.update_yaxes(range=[0, 1.02])
    reading = (
        "How much of the gradient at a projection lies along the k input directions that the projection reads most, "
        "one line a head with 95 % intervals over prompts; grey: k random directions. Above grey, a step of training "
        "sharpens what the weights already read."
    )
    return Figure("alignment", "Do gradients lie along the weights?", reading, plot, "alignment")


def _pairs(table: Table) -> tuple[Figure, ...]:
    found = []
    for step, mine, colour in coloured(table, "step"):
        plot = blank("advantage A (bits)", "change of attention (fraction)")
        plot.add_scatter(
            x=mine["advantage"], y=mine["change"], mode="markers", name=_WORDS[step],
            marker={"color": faded(colour, 0.5), "size": 5},
        )  # fmt: skip
        reading = (
            "Random pairs of a query and a key: right of 0 the value lowers the loss more than the average one, above "
            "0 the step gives it more attention. No null is drawn: the figure by head has it."
        )
        found.append(Figure(f"pairs_{step}", f"Advantage and change: {_WORDS[step]}", reading, plot, "pairs"))
    return tuple(found)
