"""The figures of a comparison: every headline number with its null, and curves along the depth."""

import itertools

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, PALETTE
from interp.probe import Figure
from interp.table import Table

from .dots import dots_figure
from .names import cut, title_of

_DASHES = ("solid", "dash", "dot", "dashdot")


def comparison_figures(findings: Findings) -> tuple[Figure, ...]:
    """Headline numbers of the groups side by side, then curves along the depth for each probe."""
    differences, curves = findings.tables.get("differences"), findings.tables.get("curves")
    if differences is None:
        return ()
    figures = [dots_figure(differences.where(differences["is_headline"]), findings.tables["numbers"])]
    if curves is not None:
        figures += [_curves(probe, curves.where(curves["probe"] == probe)) for probe in
                    dict.fromkeys(curves["probe"].tolist())]  # fmt: skip
    return tuple(figures)


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
