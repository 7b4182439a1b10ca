"""The figure of two groups side by side: both values of every headline number, grouped by what was asked.

Numbers have different units, so every row has a scale of its own; the values stand beside it.
"""

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE
from interp.errors import UnknownName
from interp.probe import Figure
from interp.registry import load_entry
from interp.table import Table
from interp.words import short

from .names import cut, in_words, title_of
from .runs import TUNNEL

if TYPE_CHECKING:
    import plotly.graph_objects as go

_NAMED = 3  # numbers that the title names; of more it says how many
_QUESTION = 56  # characters of a line of a question
_APART = 0.17  # of a row, between its middle and the dots of either group
_ROW, _AROUND = 24, 110  # pixels of a row, and of what stands above and below all rows
_SCALED = ("value", "low", "high", "null", "null_low", "null_high")

_Key = tuple[str, str]


def pair_figure(headline: Table, numbers: Table, size: np.ndarray) -> Figure:
    """Differences of headline numbers between two groups; `numbers` are those of single runs.

    `size` orders what moved: the distance of each row of `headline` in half-widths of its interval.
    """
    import plotly.graph_objects as go

    groups, title = [*dict.fromkeys(headline["group"].tolist())], _title(headline, size)
    has_value = {key for key, value in zip(_keys(headline), headline["value"], strict=True) if np.isfinite(value)}
    headline = headline.where(np.array([key in has_value for key in _keys(headline)]))
    plot, rows = go.Figure(), {}
    end = 0.0
    for probe in dict.fromkeys(headline["probe"].tolist()):
        lines = textwrap.wrap(_question(probe), _QUESTION)
        middle = end + (len(lines) - 1) / 2
        plot.add_annotation(x=0, y=middle, xanchor="left", align="left", showarrow=False, text="<br>".join(lines))
        end += len(lines)
        for name in dict.fromkeys(headline["name"][headline["probe"] == probe].tolist()):
            rows[probe, name] = end
            end += 1
    numbers = numbers.where(np.array([key in rows for key in _keys(numbers)], dtype=bool))
    for i, group in enumerate(groups):
        _draw(plot, headline, numbers, rows, (i, group))
    _lay_out(plot, headline, rows, end)
    reading = (
        f"Every row has its own scale; the values are on the right, {groups[0]} first. Lines are 95 % intervals, grey "
        "bars the 95 % bands of the nulls. A filled dot means that the interval of the difference excludes 0. A value "
        "inside its grey bar is no different from its null. Two models are not a sample: anything else in which they "
        "differ may cause a difference."
    )
    return Figure("pair", title, reading, plot, "differences")


def _title(headline: Table, size: np.ndarray) -> str:
    """What differs, most clearly first: `5 of 24 headline numbers differ; in b: slope (lower), ... and 2 more`."""
    judged = np.isin(headline["verdict"], ("moved", "within"))
    moved = np.flatnonzero(headline["verdict"] == "moved")
    if not len(moved):
        return f"None of {judged.sum()} headline numbers differs by more than its interval"
    order = moved[np.argsort(-np.abs(size[moved]), kind="stable")]
    ways = ["higher" if headline["difference"][i] > 0 else "lower" for i in order]
    named = [f"{headline['name'][i].replace('_', ' ')} ({way})" for i, way in zip(order[:_NAMED], ways, strict=False)]
    more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
    differ = "differs" if len(moved) == 1 else "differ"
    where = cut(str(headline["group"][order[0]]))
    return f"{len(moved)} of {judged.sum()} headline numbers {differ}; in {where}: {', '.join(named)}{more}"


def _question(probe: str) -> str:
    if probe == TUNNEL:
        return "How far is the tunnel from the exact posterior?"
    try:
        return load_entry("probe", probe).question
    except UnknownName:  # a record outlives the probe it was made with
        return probe.replace("_", " ")


def _keys(table: Table) -> list[_Key]:
    return list(zip(table["probe"].tolist(), table["name"].tolist(), strict=True))


def _draw(plot: "go.Figure", headline: Table, numbers: Table, rows: dict[_Key, float], of: tuple[int, str]) -> None:
    """One group: the bands of its nulls, then its values with their intervals, and its runs where it has several."""
    i, group = of
    here = np.flatnonzero(headline["group"] == group).tolist()
    keys = [key for key, row in zip(_keys(headline), headline["group"], strict=True) if row == group]
    scales = {key: _scale(headline, numbers, key) for key in keys}
    lows, widths = np.array([scales[key] for key in keys]).T
    x = {column: (headline[column][here] - lows) / widths for column in _SCALED}
    y = np.array([rows[key] for key in keys]) + _APART * (2 * i - 1)
    is_moved = [bool((_of(headline, key)["verdict"] == "moved").any()) for key in keys]
    gap = np.full(len(y), np.nan)
    plot.add_scatter(
        x=np.stack([x["null_low"], x["null_high"], gap], axis=1).ravel(), y=np.stack([y, y, gap], axis=1).ravel(),
        mode="lines", line={"color": NULL, "width": 7}, opacity=0.45, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    if (headline["n_runs"][here] > 1).any():
        runs = numbers.where(numbers["group"] == group)
        low, width = np.array([scales[key] for key in _keys(runs)]).T
        plot.add_scatter(
            x=(runs["value"] - low) / width,
            y=[rows[key] + _APART * (2 * i - 1) for key in _keys(runs)], mode="markers", customdata=runs["run"],
            hovertemplate="%{customdata}<extra></extra>", showlegend=False, marker={"size": 4, "color": PALETTE[i]},
        )  # fmt: skip
    plot.add_scatter(
        x=x["null"], y=y, mode="markers", hoverinfo="skip", showlegend=False,
        marker={"symbol": "line-ns-open", "size": 9, "color": NULL},
    )  # fmt: skip
    plot.add_scatter(
        x=x["value"], y=y, mode="markers", name=cut(group), customdata=[in_words(headline, row) for row in here],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"size": 9, "color": PALETTE[i], "symbol": ["circle" if moved else "circle-open" for moved in is_moved]},
        error_x={"type": "data", "symmetric": False, "array": x["high"] - x["value"], "thickness": 2, "width": 0,
                 "arrayminus": x["value"] - x["low"], "color": PALETTE[i]},
    )  # fmt: skip


def _of(table: Table, key: _Key) -> Table:
    return table.where((table["probe"] == key[0]) & (table["name"] == key[1]))


def _scale(headline: Table, numbers: Table, key: _Key) -> tuple[float, float]:
    """The lowest of everything that a row shows, and how far it is to the highest."""
    shown = [_of(headline, key)[column] for column in _SCALED]
    known = np.concatenate([*shown, _of(numbers, key)["value"]])
    known = known[np.isfinite(known)]
    return (float(known.min()), float(np.ptp(known)) or 1.0) if len(known) else (0.0, 1.0)


def _lay_out(plot: "go.Figure", headline: Table, rows: dict[_Key, float], end: float) -> None:
    """Names of the numbers on the left, both values on the right: the second axis wants a trace of its own."""
    plot.add_scatter(x=[None], y=[None], yaxis="y2", showlegend=False, hoverinfo="skip")
    of = [_of(headline, key) for key in rows]
    names = [title_of(name, str(mine["unit"][0])) for (_, name), mine in zip(rows, of, strict=True)]
    values = [" | ".join(short(float(value)) for value in mine["value"]) for mine in of]
    axis = {"range": [end - 0.4, -0.7], "showgrid": False, "zeroline": False, "ticks": "", "tickvals": [*rows.values()]}
    plot.update_layout(
        height=round(_AROUND + _ROW * end), xaxis={"visible": False, "range": [-0.03, 1.03]},
        yaxis=axis | {"ticktext": names}, yaxis2=axis | {"ticktext": values, "overlaying": "y", "side": "right"},
    )  # fmt: skip
