"""The figures of a comparison: what differs, every headline number with its null, curves along the depth."""

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE, VALUE
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

from .names import cut, in_words, title_of
from .pair import pair_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

SINGLE = PALETTE[1]
_DASHES = ("solid", "dash", "dot", "dashdot")
_CLIP = 3.0
_ROW, _PANEL = 26, 96  # pixels of a row of dots, and of what stands above and below it
_SHORT = 12  # characters of a name that stands level below its column


def comparison_figures(findings: Findings) -> tuple[Figure, ...]:
    """What differs first, then curves along the depth for each probe.

    Two groups stand side by side in one figure. Of more there is a map of differences and, for each probe, dots.
    """
    differences = findings.tables.get("differences")
    if differences is None:
        return ()
    headline = differences.where(differences["is_headline"])
    is_pair = len(set(headline["group"].tolist())) == 2
    if is_pair:
        figures = [pair_figure(headline, findings.tables["numbers"], _size(headline))]
    else:
        figures = [_map(headline)] if np.isfinite(_size(headline)).any() else []
        figures += [_dots(probe, headline.where(headline["probe"] == probe), findings.tables["numbers"]) for probe in
                    dict.fromkeys(headline["probe"].tolist())]  # fmt: skip
    curves = findings.tables.get("curves")
    if curves is not None:
        figures += [_curves(probe, curves.where(curves["probe"] == probe)) for probe in
                    dict.fromkeys(curves["probe"].tolist())]  # fmt: skip
    return tuple(figures)


def _size(table: Table) -> np.ndarray:
    """Each difference over the half of its interval that lies towards 0: beyond 1 the interval leaves 0 out.

    Infinite where the interval has no width, NaN where there is none or the difference is 0 too.
    """
    difference = table["difference"]
    half = np.where(difference > 0, difference - table["difference_low"], table["difference_high"] - difference)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(half >= 0, difference / half, math.nan)


def _map(table: Table) -> Figure:
    """Numbers down, groups across, coloured by how far each is from its reference."""
    import plotly.graph_objects as go

    held = table["against"] != ""
    groups = [*dict.fromkeys(table["group"][held].tolist())]
    names = [*dict.fromkeys(zip(table["probe"].tolist(), table["name"].tolist(), strict=True))]
    size = np.full((len(names), len(groups)), math.nan)
    mark = np.full(size.shape, "", dtype=object)
    said = np.full(size.shape, "", dtype=object)
    for i, of in enumerate(_size(table)):
        if not held[i]:
            continue
        at = names.index((table["probe"][i], table["name"][i])), groups.index(table["group"][i])
        size[at] = of
        mark[at] = "●" if table["verdict"][i] == "moved" else ""
        said[at] = in_words(table, i)
    plot = go.Figure(go.Heatmap(
        z=np.clip(size, -_CLIP, _CLIP), x=[cut(group) for group in groups], y=[_of(*name) for name in names],
        text=mark, texttemplate="%{text}", customdata=said, hovertemplate="%{customdata}<extra></extra>",
        zmin=-_CLIP, zmax=_CLIP, colorscale="RdBu_r", xgap=1, ygap=1,
        colorbar={"title": {"text": "half-widths", "side": "top"}, "thickness": 12},
    ))  # fmt: skip
    plot.update_layout(height=160 + _ROW * len(names))
    plot.update_yaxes(autorange="reversed", showgrid=False)
    plot.update_xaxes(showgrid=False, tickangle=-40 if len(groups) > 1 and max(map(len, groups)) > _SHORT else 0)
    reading = (
        "Columns are groups (or runs), rows are headline numbers. The colour shows the difference from the reference, "
        "in half-widths of its 95 % interval: red is higher, blue lower. A dot marks intervals that exclude 0; blank "
        "cells have no interval. Hover for values."
    )
    return Figure("moved", "Differences from the reference", reading, plot, "differences")


def _dots(probe: str, table: Table, numbers: Table) -> Figure:
    """A panel for each number: groups down, value and interval across, over the band of the null."""
    from plotly.subplots import make_subplots

    names = [*dict.fromkeys(table["name"].tolist())]
    groups = [*dict.fromkeys(table["group"].tolist())]
    titles = [title_of(name, str(table["unit"][table["name"] == name][0])) for name in names]
    height = _ROW * len(groups) + _PANEL
    plot = make_subplots(
        rows=len(names), cols=1, subplot_titles=titles, vertical_spacing=0.62 * _PANEL / (height * len(names))
    )
    for row, name in enumerate(names, start=1):
        _panel(plot, row, table.where(table["name"] == name), numbers.where(
            (numbers["probe"] == probe) & (numbers["name"] == name)), groups)  # fmt: skip
    plot.update_layout(height=height * len(names) + 40, showlegend=False)
    plot.update_annotations(font_size=11)
    plot.update_yaxes(
        tickvals=list(range(len(groups))), ticktext=[cut(group) for group in groups],
        range=[len(groups) - 0.4, -0.6], showgrid=False, zeroline=False,
    )  # fmt: skip
    plot.update_xaxes(zeroline=False, nticks=4, tickangle=0)
    is_pooled = bool((table["n_runs"] > 1).any())
    pooled = "Means over the runs of each group, 95 % t intervals; small dots are the runs"
    what = pooled if is_pooled else "Values with their 95 % intervals"
    reading = (
        f"{what}. Grey bars are the 95 % bands of the nulls: a value inside its bar is no different from its null. "
        "Compare values with their own nulls first, then with one another."
    )
    return Figure(f"numbers-{probe}", f"Headline numbers: {probe}", reading, plot, "differences")


def _panel(plot: "go.Figure", row: int, table: Table, numbers: Table, groups: list[str]) -> None:
    y = np.array([groups.index(group) for group in table["group"].tolist()])
    bars: list[float | None] = []
    lines: list[float | None] = []
    for at, low, high in zip(y.tolist(), table["null_low"].tolist(), table["null_high"].tolist(), strict=True):
        bars += [low, high, None] if math.isfinite(low + high) else [None, None, None]
        lines += [at, at, None]
    plot.add_scatter(x=bars, y=lines, mode="lines", line={"color": NULL, "width": 10}, opacity=0.45,
                     hoverinfo="skip", row=row, col=1)  # fmt: skip
    plot.add_scatter(x=table["null"], y=y, mode="markers", row=row, col=1, hovertemplate="null %{x}<extra></extra>",
                     marker={"symbol": "line-ns-open", "size": 12, "color": NULL})  # fmt: skip
    if (table["n_runs"] > 1).any():
        runs = [groups.index(group) for group in numbers["group"].tolist()]
        plot.add_scatter(x=numbers["value"], y=runs, mode="markers", row=row, col=1, customdata=numbers["run"],
                         marker={"size": 5, "color": SINGLE},
                         hovertemplate="%{customdata}: %{x}<extra></extra>")  # fmt: skip
    value = table["value"]
    plot.add_scatter(
        x=value, y=y, mode="markers", row=row, col=1, customdata=table["group"],
        marker={"size": 9, "color": VALUE}, hovertemplate="%{customdata}: %{x}<extra></extra>",
        error_x={"type": "data", "symmetric": False, "array": table["high"] - value, "thickness": 2, "width": 0,
                 "arrayminus": value - table["low"], "color": VALUE},
    )  # fmt: skip


def _curves(probe: str, table: Table) -> Figure:
    """Along the fraction of the depth, a line for each group; a menu chooses what is drawn."""
    import plotly.graph_objects as go

    of = [f"{t}: {m}" for t, m in zip(table["table"].tolist(), table["measure"].tolist(), strict=True)]
    measures, groups = [*dict.fromkeys(of)], [*dict.fromkeys(table["group"].tolist())]
    plot, buttons, shown = go.Figure(), [], []
    with_null: set[str] = set()
    for measure, group in itertools.product(measures, groups):
        here = (np.array(of) == measure) & (table["group"] == group)
        mine, i = table.where(here), groups.index(group)
        value = mine["value"]
        if np.isfinite(mine["null"]).any():
            plot.add_scatter(
                x=mine["depth"], y=mine["null"], name="null", legendgroup="null", mode="lines",
                showlegend=measure not in with_null, visible=measure == measures[0],
                line={"color": NULL, "dash": _DASHES[1 + i % (len(_DASHES) - 1)]},
                customdata=[group] * mine.n_rows, hovertemplate="null of %{customdata}: %{y}<extra></extra>",
            )  # fmt: skip
            with_null.add(measure)
            shown.append(measure)
        plot.add_scatter(
            x=mine["depth"], y=value, name=cut(group), mode="lines+markers", visible=measure == measures[0],
            line={"color": PALETTE[i % len(PALETTE)], "dash": _DASHES[i // len(PALETTE) % len(_DASHES)]},
            error_y={"type": "data", "symmetric": False, "array": mine["high"] - value, "thickness": 1, "width": 0,
                     "arrayminus": value - mine["low"]},
        )  # fmt: skip
        shown.append(measure)
    for measure in measures:
        unit = str(table["unit"][of.index(measure)])
        visible = [one == measure for one in shown]
        title = {"yaxis.title.text": title_of(measure.split(": ", 1)[1], unit)}
        buttons.append({"label": measure, "method": "update", "args": [{"visible": visible}, title]})
    plot.update_layout(updatemenus=[{"buttons": buttons, "active": 0, "name": "number"}], height=420)
    plot.update_xaxes(title_text="depth (fraction of the layers)", range=[-0.04, 1.04])
    plot.update_yaxes(title_text=title_of(measures[0].split(": ", 1)[1], str(table["unit"][0])))
    reading = (
        "One line per group (or run). The horizontal axis is the fraction of the depth, because networks differ in "
        "their number of layers. Bars are 95 % intervals; grey is the null of each group (hover for its name). Choose "
        "the number in the menu."
    )
    return Figure(f"curves-{probe}", f"By depth: {probe}", reading, plot, "curves")


def _of(probe: str, name: str) -> str:
    return f"{probe}: {name.replace('_', ' ')}"
