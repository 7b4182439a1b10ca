"""Shared parts of figures: axes, bands, colours for colour-blind readers. `reports/plotly/theme.py` has the rest."""

import html
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.formatting import short
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

VALUE = "#0072B2"
NULL = "#8C8C8C"
"""The colour of nulls in every figure, on light and dark paper."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#44AA99")
"""Okabe and Ito's colours, then Tol's. Pages and notebooks replace them by those of their theme."""

ENTROPY_SCALE = ((0.0, "#3d6fd6"), (0.5, "#b2549e"), (1.0, "#d67200"))
"""From certain to uncertain: blue to orange, with a contrast of at least 3 to 1 on white and black."""

LEAST_R2 = -0.5


def blank(x: str, y: str) -> "go.Figure":
    """An empty figure with these axis titles, HTML escaped."""
    import plotly.graph_objects as go

    x, y = html.escape(x, quote=False), html.escape(y, quote=False)
    axis = {"zeroline": False, "exponentformat": "e"}
    return go.Figure(
        layout={
            "hovermode": "closest",
            "xaxis": {"title": {"text": x}, "showgrid": False} | axis,
            "yaxis": {"title": {"text": y}, "gridcolor": "rgba(128,128,128,0.2)"} | axis,
        }
    )


def faded(colour: str, opacity: float) -> str:
    """A hexadecimal colour with an opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


class Chart:
    """A figure that is drawn from the columns of a table; each method adds what it is named for.

    `x` names the column of the horizontal axis. The interval and null of a column (`..._low`, `..._null_high`) are
    drawn with it if the table has them.
    """

    def __init__(self, table: Table, x: str, x_title: str, y_title: str) -> None:
        self.table, self.x, self.plot = table, x, blank(x_title, y_title)

    def of(self, rows: Table) -> "Chart":
        """The same figure, with other rows to draw from."""
        other = copy(self)
        other.table = rows
        return other

    def by(self, column: str) -> "Iterator[tuple[Any, Chart, str]]":
        """Each value of a column, in order of appearance, with the chart of its rows and its colour."""
        for i, (value, rows) in enumerate(self.table.groups(column)):
            yield value, self.of(rows), PALETTE[i % len(PALETTE)]

    @property
    def across(self) -> np.ndarray:
        """The horizontal coordinates of the rows."""
        return self.table[self.x]

    def band(self, bounds: tuple[np.ndarray, np.ndarray], colour: str = NULL, name: str = "") -> None:
        """A shaded band between two curves (a bar at a single x); in the legend once."""
        low, high = bounds
        kept = np.isfinite(low) & np.isfinite(high)
        x, traces = self.across[kept], list[Any](self.plot.data)
        legend = {"name": name, "legendgroup": name} if name else {}
        self.plot.add_scatter(
            x=np.concatenate([x, x[::-1]]), y=np.concatenate([high[kept], low[kept][::-1]]),
            fill="toself", fillcolor=faded(colour, 0.18), mode="lines", hoverinfo="skip",
            line={"width": 12 if len(np.unique(x)) == 1 else 0, "color": faded(colour, 0.18)},
            showlegend=bool(name and kept.any()) and all(trace.name != name for trace in traces), **legend,
        )  # fmt: skip

    def null_band(self, column: str, name: str = "null, 95 %") -> None:
        """The band of a column's null, in the legend once."""
        self.band((self.table[f"{column}_null_low"], self.table[f"{column}_null_high"]), name=name)

    def curve(self, column: str, name: str, colour: str = VALUE, dash: str | None = None, **how: Any) -> None:
        """A column, with the band of its interval."""
        if f"{column}_low" in self.table:
            self.band((self.table[f"{column}_low"], self.table[f"{column}_high"]), colour)
        self.line(column, name, dash, colour, **{"mode": "lines+markers"} | how)

    def null(self, column: str, name: str = "null", dash: str = "dash") -> None:
        """The null of a column, with its band."""
        self.null_band(column, "")
        self.line(f"{column}_null", name, dash)

    def profile(self, column: str) -> "Chart":
        """A column over its null, where it was measured."""
        if np.isfinite(self.table[f"{column}_null"]).any():
            self.null(column)
        self.curve(column, "measured")
        return self

    def line(self, y: str | float, name: str, dash: str | None = "dash", colour: str = NULL, **how: Any) -> None:
        """A reference line: a column, or one number everywhere; a dash at a single x."""
        line = {"color": colour}
        height = self.table[y] if isinstance(y, str) else np.full(self.table.n_rows, float(y))
        look: dict[str, Any] = {"mode": "lines"}
        if "mode" not in how and len(np.unique(self.across[np.isfinite(height)])) == 1:
            look = {"mode": "markers", "marker": {"symbol": "line-ew-open", "size": 16, "line": line | {"width": 2}}}
        drawn = {"x": self.across, "y": height, "name": name, "line": line | ({"dash": dash} if dash else {})}
        self.plot.add_scatter(**drawn | look | how)

    def straight(self, x: Sequence[float], y: Sequence[float], name: str, dash: str = "dash") -> None:
        """A straight line between two points."""
        self.plot.add_scatter(x=x, y=y, name=name, mode="lines", line={"color": NULL, "dash": dash})

    def diagonal(self, name: str, *columns: str) -> None:
        """The diagonal, over the range of these columns."""
        values = np.concatenate([self.table[column] for column in columns])
        ends = [float(values.min()), float(values.max())]
        self.straight(ends, ends, name)

    def level(self, y: float, name: str, dash: str = "dash") -> None:
        """A horizontal line, as far as the rows reach."""
        self.straight([float(self.across.min()), float(self.across.max())], [y, y], name, dash)

    def dots(self, column: str, name: str, colour: str = VALUE, size: int = 8, **how: Any) -> None:
        """A column as dots, with its interval as bars; along the horizontal axis if `how` has a `y`."""
        along, bars = ("x", "error_x") if "y" in how else ("y", "error_y")
        drawn: dict[str, Any] = {"x": self.across, "mode": "markers", "name": name, along: self.table[column]}
        drawn["marker"] = {"color": colour, "size": size} | how.pop("marker", {})
        if f"{column}_low" in self.table:
            drawn[bars] = error_bars(self.table, column, colour)
        self.plot.add_scatter(**drawn | how)

    def points(self, y: str, name: str = "", colour: Any = VALUE, size: int = 6, **how: Any) -> None:
        """Rows as points that show their source on hover; `colour` may be a scale (`scale_of`)."""
        marker = {"size": size, "opacity": 0.6} | (colour if isinstance(colour, dict) else {"color": colour})
        drawn: dict[str, Any] = {"x": self.across, "y": self.table[y], "mode": "markers", "marker": marker}
        drawn |= {"hovertemplate": "%{customdata}<extra>%{fullData.name}</extra>", "showlegend": bool(name)}
        where = {} if "customdata" in how else {"customdata": places(self.table)}
        self.plot.add_scatter(**drawn | {"name": name} | where | how)

    def limit_r2(self, *columns: str | np.ndarray) -> str:
        """Cut an axis of R² far below 0; returns the sentence that says so, if anything is cut."""
        values = np.concatenate([self.table[each] if isinstance(each, str) else each for each in columns])
        values = values[np.isfinite(values)]
        if not (values < LEAST_R2).any():
            return ""
        self.plot.update_yaxes(range=[LEAST_R2, float(max(values.max(), 0)) + 0.05])
        return f" R² below {short(LEAST_R2)}, far worse than the mean alone, is off the axis."


def scale_of(values: np.ndarray, title: str, unit: str, whole: np.ndarray | None = None) -> dict[str, Any]:
    """Colours of points by a number, from blue to orange; the scale spans `whole` (default: the values)."""
    spanned = values if whole is None else whole
    return {
        "color": values, "colorscale": ENTROPY_SCALE, "cmin": float(spanned.min()), "cmax": float(spanned.max()),
        "colorbar": {"title": {"text": f"{html.escape(title)}<br>({html.escape(unit)})"}},
    }  # fmt: skip


def head_map(table: Table, values: np.ndarray, unit: str, top: float | None = None, **how: Any) -> "go.Figure":
    """A square for each head, layers across and heads down; red above 0 and blue below, or from 0 to `top`."""
    layers, heads = np.unique(table["layer"]), np.unique(table["head"])

    def squares(of: Any) -> np.ndarray:
        return np.asarray(of).reshape(len(layers), len(heads)).T

    most = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    colours = {"colorscale": "RdBu", "reversescale": True, "zmin": -most, "zmax": most}
    if top is not None:
        colours = {"colorscale": "Cividis", "zmin": 0, "zmax": top}
    plot = blank("layer", "head")
    plot.add_heatmap(
        x=layers, y=heads, z=squares(values), colorbar={"title": {"text": unit}},
        **colours | {"hovertemplate": f"layer %{{x}} head %{{y}}: %{{z:.3g}} {unit}<extra></extra>"}
        | {name: squares(of) if name == "text" else of for name, of in how.items()},
    )  # fmt: skip
    plot.update_yaxes(autorange="reversed", showgrid=False)
    return plot


def within(table: Table, column: str) -> Table:
    """The table with the interval of a statistic clipped to [0, 1], the range of |ρ|."""
    for name in (f"{column}_low", f"{column}_high"):
        table = table.with_column(name, np.clip(table[name], 0.0, 1.0), table.units[name])
    return table


def places(points: Table) -> list[str]:
    """The source of each row, for its hover: its text, else its sequence and position."""
    if "text" in points:
        return [str(text) for text in points["text"]]
    return [f"sequence {p}, position {t}" for p, t in zip(points["prompt"], points["position"], strict=True)]


def span(*values: np.ndarray) -> list[float]:
    """A range that holds all values with room at its ends."""
    low, high = float(np.min(values)), float(np.max(values))
    room = 0.05 * (high - low) or 1.0
    return [low - room, high + room]


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


def add_menu(plot: "go.Figure", shown: Mapping[str, tuple[str, str]], drawn: Sequence[str] = ()) -> None:
    """A menu of numbers, one drawn at a time; `shown` has their labels and axis titles.

    `drawn` says which number each trace draws; without it each is drawn by as many, in their order.
    """
    traces: Any = plot.data
    drawn = drawn or [name for name in shown for _ in range(len(traces) // len(shown))]
    buttons = []
    for name, (label, title) in shown.items():
        args = [{"visible": [each == name for each in drawn]}, {"yaxis.title.text": title}]
        buttons.append({"method": "update", "label": label, "args": args})
    for trace, name in zip(traces, drawn, strict=True):
        trace.visible = name == next(iter(shown))
    plot.update_layout(updatemenus=[{"active": 0, "buttons": buttons, "name": "number"}])
