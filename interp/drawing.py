"""What the figures of probes and studies share: a quiet layout, bands, and colours that survive colour blindness.

Backgrounds are transparent and text has no colour of its own, so that a page's theme shows through.
"""

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.table import Table
from interp.words import short

if TYPE_CHECKING:
    import plotly.graph_objects as go

VALUE = "#0072B2"
NULL = "#8C8C8C"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")
"""Okabe and Ito's colours, then Tol's. Pages and notebooks show colours of their theme in their place."""

ENTROPY_SCALE = ((0.0, "#3d6fd6"), (0.5, "#b2549e"), (1.0, "#d67200"))
"""From certain to uncertain: blue to orange, all of it at least 3 to 1 against white and against black."""

LEAST_R2 = -0.5
BELOW_R2 = f" R² below {short(LEAST_R2)}, far worse than the mean alone, is off the axis."


def blank(x: str, y: str) -> "go.Figure":
    """An empty figure with these axis titles, which are shown to the letter."""
    import plotly.graph_objects as go

    x, y = html.escape(x, quote=False), html.escape(y, quote=False)

    return go.Figure(
        layout={
            "template": "none", "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
            "margin": {"l": 64, "r": 16, "t": 16, "b": 48}, "hovermode": "closest",
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "xaxis": {"title": {"text": x}, "showgrid": False, "zeroline": False},
            "yaxis": {"title": {"text": y}, "gridcolor": "rgba(128,128,128,0.2)", "zeroline": False},
        }
    )  # fmt: skip


def faded(colour: str, opacity: float) -> str:
    """A hexadecimal colour with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def add_band(plot: "go.Figure", x: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], colour: str) -> None:
    """A shaded band between two curves; stretches without bounds are left out."""
    low, high = bounds
    kept = np.isfinite(low) & np.isfinite(high)
    plot.add_scatter(
        x=np.concatenate([x[kept], x[kept][::-1]]), y=np.concatenate([high[kept], low[kept][::-1]]),
        fill="toself", fillcolor=faded(colour, 0.18), line={"width": 0}, mode="lines", hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip


def add_null_band(
    plot: "go.Figure", x: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], name: str = "null, 95 %"
) -> None:
    """The grey band of a null, named in the legend: once, however many stretches of it a figure holds."""
    add_band(plot, x, bounds, NULL)
    traces: Any = plot.data
    is_first = not any(trace.name == name for trace in traces)
    is_drawn = bool((np.isfinite(bounds[0]) & np.isfinite(bounds[1])).any())
    plot.update_traces(
        {"name": name, "legendgroup": name, "showlegend": is_first and is_drawn},
        selector=len(traces) - 1,
    )


def add_line(
    plot: "go.Figure", x: Sequence[Any] | np.ndarray, y: Sequence[Any] | np.ndarray, name: str, dash: str = "dash",
    colour: str = NULL,
) -> None:  # fmt: skip
    """A line to compare with: a null that is one number, the diagonal, another reader."""
    plot.add_scatter(x=x, y=y, name=name, mode="lines", line={"color": colour, "dash": dash})


def add_curve(
    plot: "go.Figure", x: np.ndarray, table: Table, column: str, name: str, colour: str, dash: str | None = None
) -> None:
    """A statistic of a table, with its interval where the table has one."""
    if f"{column}_low" in table:
        add_band(plot, x, (table[f"{column}_low"], table[f"{column}_high"]), colour)
    line = {"color": colour} | ({"dash": dash} if dash else {})
    plot.add_scatter(x=x, y=table[column], name=name, mode="lines+markers", line=line)


def add_null_curve(
    plot: "go.Figure", x: np.ndarray, table: Table, column: str, name: str = "null", dash: str = "dash"
) -> None:
    """The null of a statistic of a table, with its band."""
    add_band(plot, x, (table[f"{column}_null_low"], table[f"{column}_null_high"]), NULL)
    add_line(plot, x, table[f"{column}_null"], name, dash)


def within(table: Table, column: str, low: float = 0.0, high: float = 1.0) -> Table:
    """The table with the interval of a statistic cut to what it can be: |ρ| is never below 0 nor above 1."""
    for name in (f"{column}_low", f"{column}_high"):
        table = table.with_column(name, np.clip(table[name], low, high), table.units[name])
    return table


def r2_range(*columns: np.ndarray) -> list[float] | None:
    """The range of an axis of R² where something lies below `LEAST_R2`; None where the whole axis can be shown."""
    values = np.concatenate(columns)
    values = values[np.isfinite(values)]
    return [LEAST_R2, float(max(values.max(), 0)) + 0.05] if values.size and values.min() < LEAST_R2 else None


def limit_r2(plot: "go.Figure", *columns: np.ndarray) -> str:
    """Cut the axis of R² where something lies far below 0; the sentence that then says so, else nothing."""
    shown = r2_range(*columns)
    plot.update_yaxes(range=shown)
    return BELOW_R2 if shown else ""


def add_profile(plot: "go.Figure", table: Table, x: str, column: str) -> None:
    """A statistic of a table with its interval, over its null with its band."""
    if np.isfinite(table[f"{column}_null"]).any():
        add_null_curve(plot, table[x], table, column)
    add_curve(plot, table[x], table, column, "measured", VALUE)


def coloured(table: Table, column: str) -> Iterator[tuple[Any, Table, str]]:
    """Every value of a column with its rows and a colour of its own, in the order of appearance."""
    for i, (value, rows) in enumerate(table.groups(column)):
        yield value, rows, PALETTE[i % len(PALETTE)]


def places(points: Table) -> list[str]:
    """Where each row comes from, for its hover: the text that was read, else its sequence and the position in it."""
    if "text" in points:
        return [str(text) for text in points["text"]]
    return [f"sequence {p}, position {t}" for p, t in zip(points["prompt"], points["position"], strict=True)]


def error_bars(table: Table, column: str, colour: str, width: float = 1.5) -> dict[str, object]:
    """The interval of a statistic of a table as bars."""
    value, low, high = (table[column + end] for end in ("", "_low", "_high"))
    return {
        "type": "data", "symmetric": False, "array": high - value, "arrayminus": value - low, "thickness": width,
        "width": 0, "color": colour,
    }  # fmt: skip


def add_slider(plot: "go.Figure", names: Sequence[str], shown: Sequence[Sequence[bool]], active: int) -> None:
    """A slider whose steps show some traces and hide the others; `shown` has one row a step."""
    for i, visible in enumerate(shown[active]):
        plot.update_traces(visible=visible, selector=i)
    steps = [
        {"method": "restyle", "args": [{"visible": list(row)}], "label": name}
        for name, row in zip(names, shown, strict=True)
    ]
    plot.update_layout(
        sliders=[{"active": active, "currentvalue": {"prefix": "layer "}, "pad": {"t": 40}, "steps": steps}]
    )
