"""The figures of the study `gradient_laws`, from its findings alone."""

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, VALUE, Chart, error_bars
from interp.probe import Figure
from interp.table import Table

_EXACT = 1e-17
"""Where a residual of exactly 0 is drawn on a log scale."""

_WORDS = {"queries_and_keys": "step on queries and keys", "model": "step on all weights"}


def gradient_figures(findings: Findings) -> tuple[Figure, ...]:
    """Residuals beside wrong laws, and agreement by head."""
    return _laws(findings.tables["laws"]), _by_head(findings.tables["by_head"])


def _laws(table: Table) -> Figure:
    chart = Chart(table, "residual", "relative residual", "")
    place = np.arange(table.n_rows)
    for column, name, colour in (
        ("residual", "the law", VALUE), ("wrong_law", "null: a law that is nearly right", NULL),
    ):  # fmt: skip
        x = np.maximum(table[column], _EXACT)
        chart.dots(column, name, colour, 10, x=x, y=place, text=[f"{v:.2g}" for v in table[column]],
                   hovertemplate="%{text}")  # fmt: skip
    chart.plot.update_xaxes(type="log", exponentformat="power")
    names = [str(law) for law in table["law"]]
    chart.plot.update_yaxes(tickmode="array", tickvals=place, ticktext=names, autorange="reversed")
    reading = (
        "Largest difference of autograd and law over all prompts, relative to the largest gradient. Rounding of "
        "float64 is near 1e-15; 0 is drawn at 1e-17. Null: a law that leaves out one thing, at its smallest residual."
    )
    return Figure("laws", "Do the laws hold?", reading, chart.plot, "laws")


def _by_head(table: Table) -> Figure:
    chart = Chart(table, "head", "head", "attention that moved to better values (fraction)")
    steps = list(chart.by("step"))
    for i, (step, mine, colour) in enumerate(steps):
        x = mine.across + (i - (len(steps) - 1) / 2) * 0.2
        bars, marker = error_bars(mine.table, "moved_null", NULL, 6.0), {"symbol": "line-ew-open"}
        mine.dots(
            "moved_null", "null: advantages permuted", NULL, 12, x=x, marker=marker, error_y=bars, showlegend=i == 0
        )
        mine.dots("moved", _WORDS[step], colour, 9, x=x)
    chart.plot.update_xaxes(dtick=1)
    chart.plot.update_yaxes(range=[0, 1.02])
    reading = (
        "Of all attention that a step moves in a head, the share that grows at keys of positive advantage or shrinks "
        "at others, with 95 % intervals over prompts; null: the same with advantages permuted within each row. A head "
        "inside its null bar does not move where its advantages point."
    )
    return Figure("by_head", "Does attention move to better values?", reading, chart.plot, "by_head")
