"""The figures of a comparison: every headline number with its null, and curves along the depth."""

import html
import itertools
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.findings import Findings
from interp.formatting import short, with_unit
from interp.plotting import NULL, PALETTE, add_menu, error_bars
from interp.probe import Figure
from interp.records.labels import label_with_unit
from interp.table import Table

from ..page.sections import question_of
from .tables import OTHER

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DASHES = ("solid", "dash", "dot", "dashdot")
_NAME = 34  # characters of a name along an axis
_QUESTION, _LABEL = 46, 50  # characters of a line of a question, and of the name of a row: a phone shows as many
_APART, _SPREAD = 0.28, 0.56  # of a row: between two groups at most, and over all of them
_ABOVE, _BELOW = 0.38, 0.04  # of a row: how far its name lies above its middle, and its dots below
_ROW, _A_GROUP, _AROUND = 48, 13, 110  # pixels of a row at least, for each group in it, above and below all rows
_VALUES = 1.04  # where the column of values stands, in widths of a row
_DIGIT = 0.021  # of a figure as narrow as on a phone: the width of a digit of these values
_LINE = 18  # pixels of a line of a question
_SCALED = ["value", "low", "high", "null", "null_low", "null_high"]


def comparison_figures(findings: Findings) -> tuple[Figure, ...]:
    """Headline numbers of the groups side by side, then curves along the depth for each probe."""
    differences, curves = findings.tables.get("differences"), findings.tables.get("curves")
    if differences is None:
        return ()
    figures = [_dots(differences.where(differences["is_headline"]), findings.tables["numbers"])]
    if curves is not None:
        figures += [_curves(probe, curves.where(curves["probe"] == probe)) for probe in
                    dict.fromkeys(curves["probe"].tolist())]  # fmt: skip
    return tuple(figures)


def _dots(headline: Table, numbers: Table) -> Figure:
    """Headline numbers of all groups, under the question that each answers; `numbers` are those of single runs."""
    import plotly.graph_objects as go

    rows, runs = _framed(headline, numbers)
    groups = [*dict.fromkeys(headline["group"].tolist())]
    plot, y_of = go.Figure(), {}
    line, end = _LINE / max(_ROW, _A_GROUP * len(groups)), 0.0
    left: dict[str, Any] = {"x": 0, "xanchor": "left", "align": "left", "showarrow": False}
    for probe, asked in rows.groupby("probe", sort=False):
        lines = textwrap.wrap(question_of(probe), _QUESTION)
        end += line
        middle = end + line * (len(lines) - 1) / 2
        question = "<br>".join(html.escape(line, quote=False) for line in lines)
        plot.add_annotation(**left, y=middle, text=f"<b>{question}</b>")
        end += line * (len(lines) + 0.2) + _ABOVE
        for key, label in asked.groupby("key", sort=False)["label"].first().items():
            words = textwrap.wrap(html.escape(label, quote=False), _LABEL)
            end += line * (len(words) - 1)
            middle = end - _ABOVE - line * (len(words) - 1) / 2
            plot.add_annotation(**left, y=middle, text="<br>".join(words), font={"size": 12})
            y_of[key] = end + _BELOW
            end += 1
    for of in (rows, runs):
        of["y"] = of["key"].map(y_of).astype(float)
    for i, group in enumerate(groups):
        apart = (i - (len(groups) - 1) / 2) * min(_APART, _SPREAD / len(groups))
        _draw(plot, rows, runs, group, apart, PALETTE[i % len(PALETTE)])
    beside = _DIGIT * max(map(len, map(short, rows["value"])), default=0)
    plot.update_layout(
        height=round(_AROUND + max(_ROW, _A_GROUP * len(groups)) * end),
        xaxis={"visible": False, "range": [-0.03, (_VALUES + 0.03 * beside) / (1 - beside)]},
        yaxis={"visible": False, "range": [end - 0.4, -0.7]},
    )
    reading = (
        "Every row has its own scale; its values stand at its end. Lines are 95 % intervals, bars the 95 % bands "
        "of the nulls; a value in its band is no different from its null. A filled dot means that the interval of the "
        "difference excludes 0."
    )
    return Figure("numbers", "The headline numbers side by side", reading, plot, "differences")


def _framed(headline: Table, numbers: Table) -> tuple[Any, Any]:
    """Both tables as frames, with the `key` and `label` of the row that shows a number, its lowest value and width.

    Groups share a row unless their targets differ. Rows without any value are left out.
    """
    import pandas

    rows = headline.to_frame()
    columns = ["probe", "name", "meaning", "unit"]
    rows["label"] = [label_with_unit(*each) for each in rows[columns].itertuples(index=False)]
    rows["key"] = rows["probe"] + "." + rows["name"]
    is_apart = rows["key"].isin(rows.loc[rows["method"] == OTHER, "key"])
    rows.loc[is_apart, "key"] += " " + rows["label"]
    runs = numbers.to_frame().merge(rows[["probe", "name", "group", "key"]])
    shown = [rows.melt("key", _SCALED, value_name="x"), runs.melt("key", ["value"], value_name="x")]
    known = pandas.concat(shown)
    spans = known[np.isfinite(known["x"])].groupby("key")["x"].agg(lowest="min", highest="max")
    spans["width"] = (spans["highest"] - spans["lowest"]).replace(0, 1.0)
    has_value = {*rows.loc[np.isfinite(rows["value"]), "key"]}
    rows, runs = (of[of["key"].isin(has_value)].join(spans, on="key") for of in (rows, runs))
    return rows, runs


def _draw(plot: "go.Figure", rows: Any, runs: Any, group: str, apart: float, colour: str) -> None:
    """One group: the bands of its nulls, then its values with their intervals, and its runs where it has several."""
    own, runs = rows[rows["group"] == group], runs[runs["group"] == group]
    x = {column: ((own[column] - own["lowest"]) / own["width"]).to_numpy() for column in _SCALED}
    y = own["y"].to_numpy() + apart
    moved = rows.loc[((rows["group"] == group) | (rows["against"] == group)) & (rows["verdict"] == "moved"), "key"]
    gap = np.full(len(y), np.nan)
    plot.add_scatter(
        x=np.stack([x["null_low"], x["null_high"], gap], axis=1).ravel(), y=np.stack([y, y, gap], axis=1).ravel(),
        mode="lines", line={"color": NULL, "width": 7}, opacity=0.45, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    if (own["n_runs"] > 1).any():
        plot.add_scatter(
            x=(runs["value"] - runs["lowest"]) / runs["width"], y=(runs["y"] + apart).tolist(), mode="markers",
            customdata=runs["run"], hovertemplate="%{customdata}<extra></extra>", showlegend=False,
            marker={"size": 4, "color": colour},
        )  # fmt: skip
    plot.add_scatter(
        x=x["null"], y=y, mode="markers", hoverinfo="skip", showlegend=False,
        marker={"symbol": "line-ns-open", "size": 9, "color": NULL},
    )  # fmt: skip
    bounds = Table({"value": x["value"], "value_low": x["low"], "value_high": x["high"]}, {"value": "1"})
    symbols = ["circle" if is_moved else "circle-open" for is_moved in own["key"].isin(moved)]
    plot.add_scatter(
        x=x["value"], y=y, mode="markers", name=_cut(group), customdata=[*map(_in_words, own.to_dict("records"))],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"size": 9, "color": colour, "symbol": symbols},
        error_x=error_bars(bounds, "value", colour, 2.0),
    )  # fmt: skip
    plot.add_scatter(
        x=np.full(len(y), _VALUES), y=y, mode="text", text=[*map(short, own["value"])], textposition="middle right",
        textfont={"size": 11, "color": colour}, hoverinfo="skip", showlegend=False,
    )  # fmt: skip


def _curves(probe: str, table: Table) -> Figure:
    """A line for each group along the fraction of the depth; a menu chooses the number."""
    import plotly.graph_objects as go

    of = [f"{t}: {m}" for t, m in zip(table["table"].tolist(), table["measure"].tolist(), strict=True)]
    measures, groups = [*dict.fromkeys(of)], [*dict.fromkeys(table["group"].tolist())]
    plot, shown = go.Figure(), []
    with_null: set[str] = set()
    for measure, group in itertools.product(measures, groups):
        here = (np.array(of) == measure) & (table["group"] == group)
        mine, i = table.where(here), groups.index(group)
        value = mine["value"]
        if np.isfinite(mine["null"]).any():
            plot.add_scatter(
                x=mine["depth"], y=mine["null"], name="null", legendgroup="null", mode="lines",
                showlegend=measure not in with_null,
                line={"color": NULL, "dash": _DASHES[1 + i % (len(_DASHES) - 1)]},
                customdata=[group] * mine.n_rows, hovertemplate="null of %{customdata}: %{y}<extra></extra>",
            )  # fmt: skip
            with_null.add(measure)
            shown.append(measure)
        plot.add_scatter(
            x=mine["depth"], y=value, name=_cut(group), mode="lines+markers",
            line={"color": PALETTE[i % len(PALETTE)], "dash": _DASHES[i // len(PALETTE) % len(_DASHES)]},
            error_y={"type": "data", "symmetric": False, "array": mine["high"] - value, "thickness": 1, "width": 0,
                     "arrayminus": value - mine["low"]},
        )  # fmt: skip
        shown.append(measure)
    titles = {m: _title(m.split(": ", 1)[1], str(table["unit"][of.index(m)])) for m in measures}
    add_menu(plot, {measure: (measure, title) for measure, title in titles.items()}, shown)
    plot.update_layout(height=420)
    plot.update_xaxes(title_text="depth (fraction of the layers)", range=[-0.04, 1.04])
    plot.update_yaxes(title_text=titles[measures[0]])
    reading = (
        "One line per group (or run). The horizontal axis is the fraction of the depth, because networks differ in "
        "their number of layers. Bars are 95 % intervals; each group has its null (hover for its name). Choose "
        "the number in the menu."
    )
    return Figure(f"curves-{probe}", f"By depth: {probe}", reading, plot, "curves")


def _in_words(row: Mapping[str, Any]) -> str:
    """A row of the table of differences in one line: the difference, or the value without a reference."""
    columns = ("difference", "difference_low", "difference_high") if row["against"] else ("value", "low", "high")
    value, low, high = (short(row[column]) for column in columns)
    than = f" compared with {row['against']}" if row["against"] else ""
    verdict = f", {row['verdict'] or 'not tested'}" if row["against"] else ""
    return f"{row['name']}: {row['group']}{than}: {with_unit(value, row['unit'])} ({low} to {high}){verdict}"


def _title(name: str, unit: str) -> str:
    words = name.removesuffix(f"_{unit}").replace("_", " ")
    return html.escape(words if unit in ("1", "", "label") else f"{words} ({unit})")


def _cut(name: str) -> str:
    """A name that fits beside a figure, cut at its beginning."""
    return name if len(name) <= _NAME else f"…{name[-(_NAME - 1) :]}"
