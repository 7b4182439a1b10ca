"""The figures of the probe `heads`, from its findings alone."""

from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import NULL, PALETTE, add_curve, blank, coloured, error_bars
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PRIMARY = ("posterior_kl", "next_kl")
_WORDS = {
    "posterior_kl": "more KL from the exact posterior (bits)", "next_kl": "KL from the unedited prediction (bits)",
    "entropy_error": "more entropy error (bits)", "loss": "more loss (bits)",
}  # fmt: skip


def heads_figures(findings: Findings) -> tuple[Figure, ...]:
    """Maps of heads, heads in order, their screen, layers, and sets; on SULA prompts heads and layers again."""
    tables, figures = findings.tables, []
    if "by_head" in tables:
        figures += [_map(tables["by_head"], str(how)) for how, _ in tables["by_head"].groups("how")]
        figures.append(_ranked(tables["by_head"]))
        if "screened" in tables["by_head"]:
            figures.append(_screen(tables["by_head"]))
    if "by_layer" in tables:
        figures.append(_layers(tables["by_layer"], "by_layer", "Layers switched off"))
    if "sets" in tables:
        figures.append(_sets(tables["sets"]))
    if "sula_by_head" in tables:
        figures.append(_map(tables["sula_by_head"], str(tables["sula_by_head"]["how"][0]), "sula_by_head"))
    if "sula_by_layer" in tables:
        figures.append(_layers(tables["sula_by_layer"], "sula_by_layer", "Layers switched off, calibration on SULA"))
    return tuple(figures)


def _measure(table: Table) -> str:
    return next(name for name in _PRIMARY if name in table)


def _map(table: Table, how: str, name: str = "by_head") -> Figure:
    import plotly.graph_objects as go

    mine, measure = table.where(table["how"] == how), _measure(table)
    layers, heads = np.unique(mine["layer"]), np.unique(mine["head"])
    harm = mine[measure].reshape(len(layers), len(heads))
    words = [
        [
            "not measured" if np.isnan(value) else f"{value:.3g} bits [{low:.3g}, {high:.3g}]"
            for value, low, high in zip(*row, strict=True)
        ]
        for row in zip(
            *(mine[column].reshape(harm.shape) for column in (measure, f"{measure}_low", f"{measure}_high")),
            strict=True,
        )
    ]
    most = float(np.nanmax(np.abs(harm), initial=0.0)) or 1.0
    plot = blank("head", "layer")
    plot.add_trace(
        go.Heatmap(
            z=harm, x=heads, y=layers, text=words, zmin=-most, zmax=most, colorscale="RdBu", reversescale=True,
            colorbar={"title": {"text": "bits"}},
            hovertemplate="layer %{y} head %{x}<br>%{text}<extra></extra>",
        )
    )  # fmt: skip
    if has_null := _has_null(mine):
        beyond = mine.where((mine[f"{measure}_low"] > mine["null_high"]) | (mine[f"{measure}_high"] < mine["null_low"]))
        plot.add_scatter(
            x=beyond["head"], y=beyond["layer"], mode="markers", name="beyond the null", hoverinfo="skip",
            marker={"symbol": "circle-open", "size": 12, "color": NULL, "line": {"width": 2, "color": NULL}},
        )  # fmt: skip
    plot.update_xaxes(dtick=1 if len(heads) <= 16 else None)
    plot.update_yaxes(dtick=1 if len(layers) <= 16 else None, showgrid=False)
    on_sula = name != "by_head"
    reading = (
        f"Each square is one head. Red: ablating it ({how}) does harm ({_WORDS[measure]}); blue: the model does better "
        f"without it; white: not needed while all others are there. {_null_in_words(has_null, mine, table)}"
        f"{_gaps_in_words(harm)}"
    )
    title = f"Head by head: {how} ablation" + (", calibration on SULA" if on_sula else "")
    return Figure(f"{'sula_' if on_sula else ''}map_{how}", title, reading, plot, name)


def _gaps_in_words(harm: np.ndarray) -> str:
    n_gaps = int(np.isnan(harm).sum())
    return f" {n_gaps} heads were not measured (gaps)." if n_gaps else ""


def _null_in_words(is_drawn: bool, mine: Table, table: Table) -> str:
    if is_drawn:
        has_null = np.isfinite(mine["null"])
        where = "" if has_null.all() else f", measured in layer {mine['layer'][has_null][0]} only"
        return f"A ring marks heads above or below the null (random subspaces of their layer{where})."
    other = "the map of the first ablation has it" if _has_null(table) else "none was measured"
    return f"No null is drawn: {other}."


def _has_null(table: Table) -> bool:
    return "null" in table and bool(np.isfinite(table["null"]).any())


def _ranked(table: Table, most: int = 32) -> Figure:
    measure, how = _measure(table), str(table["how"][0])
    mine = table.where(table["how"] == how)
    order = np.argsort(-mine[measure], kind="stable")[: min(most, int(np.isfinite(mine[measure]).sum()))]
    mine = mine.where(order)
    names = [f"{layer}.{head}" for layer, head in zip(mine["layer"], mine["head"], strict=True)]
    place = np.arange(len(names))
    plot = blank("layer.head, most harmful first", _WORDS[measure])
    _null_marks(plot, mine, place)
    for each, other, colour in coloured(table, "how"):
        other = other.where(order)
        plot.add_scatter(
            x=place, y=other[measure], mode="markers", name=each, marker={"color": colour, "size": 8},
            error_y=error_bars(other, measure, colour),
        )  # fmt: skip
    plot.update_xaxes(tickmode="array", tickvals=place, ticktext=names, tickangle=-90, tickfont={"size": 11})
    reading = (
        f"Heads in order of harm ({how} ablation), with 95 % intervals. Grey bars are the null: random subspaces of "
        "the same dimension removed from the head outputs of the same layer."
    )
    return Figure("ranked", "Does one head matter more than the others?", reading, plot, "by_head")


def _screen(table: Table) -> Figure:
    measure, how = _measure(table), str(table["how"][0])
    mine = table.where((table["how"] == how) & np.isfinite(table[measure]))
    ends = [
        float(min(mine["screened"].min(), mine[measure].min())),
        float(max(mine["screened"].max(), mine[measure].max())),
    ]
    plot = blank("estimated harm (bits)", _WORDS[measure])
    plot.add_scatter(x=ends, y=ends, mode="lines", name="estimate = harm", line={"color": NULL}, hoverinfo="skip")
    for chosen, heads, colour in coloured(mine, "chosen"):
        names = [f"layer {layer} head {head}" for layer, head in zip(heads["layer"], heads["head"], strict=True)]
        plot.add_scatter(
            x=heads["screened"], y=heads[measure], mode="markers", name=chosen, text=names,
            marker={"color": colour, "size": 7}, error_y=error_bars(heads, measure, colour),
        )  # fmt: skip
    reading = (
        f"Estimated and measured harm of each head ({how} ablation), with 95 % intervals. On the grey line the "
        "estimate is exact. Random heads represent all heads that were not selected. No null is drawn."
    )
    return Figure("screen", "How accurate is the estimate from gradients?", reading, plot, "by_head")


def _null_marks(plot: "go.Figure", table: Table, place: np.ndarray) -> None:
    if _has_null(table):
        plot.add_bar(
            x=place, y=table["null_high"] - table["null_low"], base=table["null_low"], name="null: random subspaces",
            marker={"color": NULL, "opacity": 0.35},
        )  # fmt: skip


def _layers(table: Table, name: str, title: str) -> Figure:
    measure = _measure(table)
    plot = blank("layer", _WORDS[measure])
    for part, mine, colour in coloured(table, "part"):
        plot.add_bar(
            x=mine["layer"], y=mine[measure], name=part, marker={"color": colour},
            error_y=error_bars(mine, measure, NULL),
        )  # fmt: skip
    plot.update_layout(barmode="group")
    plot.update_xaxes(dtick=1)
    reading = (
        "Harm when a layer is bypassed, or its attention or feed-forward switched off, with 95 % intervals. A layer at "
        "0 is not needed while the others are there. The null is the zero line: nothing switched off."
    )
    return Figure(name, title, reading, plot, name)


def _sets(table: Table) -> Figure:
    plot = blank("heads removed together", "harm (bits)")
    x = table["n_heads"]
    for name, column, colour in (
        ("random sets", "joint", PALETTE[0]), ("null: sum of their members", "summed", NULL),
        ("most harmful", "top", PALETTE[1]),
    ):  # fmt: skip
        add_curve(plot, x, table, column, name, colour)
    plot.update_xaxes(type="log", tickvals=x, ticktext=[str(k) for k in x])
    reading = (
        "Above the grey line, the null (the sum of their members' harms), heads of a random set compensate for one "
        "another: each seems dispensable until the others are gone. Below it, their harms overlap. "
        "The most harmful together can do less than fewer of them, because KL saturates once the prediction is lost. "
        "Bands are 95 % over prompts."
    )
    return Figure("sets", "Do effects add up?", reading, plot, "sets")
