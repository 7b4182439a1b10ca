"""The figures of the probe `heads`, from its findings alone."""

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, PALETTE, Chart, error_bars, head_map
from interp.probe import Figure
from interp.table import Table

_PRIMARY = ("posterior_kl", "next_kl")
_WORDS = {
    "posterior_kl": "more KL from the exact posterior (bits)", "next_kl": "KL from the unedited prediction (bits)",
    "entropy_error": "more entropy error (bits)", "loss": "more loss (bits)",
}  # fmt: skip
_MOST_RANKED = 32


def heads_figures(findings: Findings) -> tuple[Figure, ...]:
    """Maps of heads, heads in order, their screen, layers, and sets."""
    tables, figures = findings.tables, []
    if "by_head" in tables:
        figures += [_map(tables["by_head"], str(how)) for how, _ in tables["by_head"].groups("how")]
        figures.append(_ranked(tables["by_head"]))
        if "screened" in tables["by_head"]:
            figures.append(_screen(tables["by_head"]))
    if "by_layer" in tables:
        figures.append(_layers(tables["by_layer"]))
    if "sets" in tables:
        figures.append(_sets(tables["sets"]))
    return tuple(figures)


def _measure(table: Table) -> str:
    return next(name for name in _PRIMARY if name in table)


def _map(table: Table, how: str) -> Figure:
    mine, measure = table.where(table["how"] == how), _measure(table)
    harm, low, high = (mine[measure + end] for end in ("", "_low", "_high"))
    words = [
        "not measured" if np.isnan(x) else f"{x:.3g} bits [{a:.3g}, {b:.3g}]"
        for x, a, b in zip(harm, low, high, strict=True)
    ]
    hover = "layer %{x} head %{y}<br>%{text}<extra></extra>"
    plot = head_map(mine, harm, "bits", text=words, hovertemplate=hover)
    why = "the map of the first ablation has it" if _has_null(table) else "none was measured"
    null = f"No null is drawn: {why}."
    if _has_null(mine):
        for label, symbol, is_beyond in (
            ("more harm than the null", "circle-open", low > mine["null_high"]),
            ("less harm than the null", "square-open", high < mine["null_low"]),
        ):
            plot.add_scatter(
                x=mine["layer"][is_beyond], y=mine["head"][is_beyond], mode="markers", name=label, hoverinfo="skip",
                marker={"symbol": symbol, "size": 12, "color": NULL, "line": {"width": 2, "color": NULL}},
            )  # fmt: skip
        has_null = np.isfinite(mine["null"])
        where = "" if has_null.all() else f", measured in layer {mine['layer'][has_null][0]} only"
        null = (
            f"Rings mark heads that do more harm than the null (random subspaces of their layer{where}), squares less."
        )
    n_gaps = int(np.isnan(harm).sum())
    reading = (
        f"Each square is one head. Red: ablating it ({how}) does harm ({_WORDS[measure]}); blue: the model is better "
        f"without it; white: not needed while all others are there. {null}"
        + (f" {n_gaps} heads were not measured (gaps)." if n_gaps else "")
    )
    return Figure(f"map_{how}", f"Head by head: {how} ablation", reading, plot, "by_head")


def _has_null(table: Table) -> bool:
    return "null" in table and bool(np.isfinite(table["null"]).any())


def _ranked(table: Table) -> Figure:
    measure, how = _measure(table), str(table["how"][0])
    first = table.where(table["how"] == how)
    order = np.argsort(-first[measure], kind="stable")[: min(_MOST_RANKED, int(np.isfinite(first[measure]).sum()))]
    first, place = first.where(order), np.arange(len(order))
    names = [f"{layer}.{head}" for layer, head in zip(first["layer"], first["head"], strict=True)]
    chart = Chart(table, "layer", "layer.head, most harmful first", _WORDS[measure])
    if _has_null(first):
        chart.plot.add_bar(
            x=place, y=first["null_high"] - first["null_low"], base=first["null_low"], name="null: random subspaces",
            marker={"color": NULL, "opacity": 0.35},
        )  # fmt: skip
    for each, of, colour in chart.by("how"):
        chart.of(of.table.where(order)).dots(measure, each, colour, x=place)
    ticks = {"tickmode": "array", "tickvals": place, "ticktext": names, "tickangle": -90, "tickfont": {"size": 11}}
    chart.plot.update_xaxes(**ticks)
    reading = (
        f"Heads in order of harm ({how} ablation), with 95 % intervals. The null: random subspaces of "
        "the same dimension removed from the head outputs of the same layer."
    )
    return Figure("ranked", "Does one head matter more than the others?", reading, chart.plot, "by_head")


def _screen(table: Table) -> Figure:
    measure, how = _measure(table), str(table["how"][0])
    chart = Chart(
        table.where((table["how"] == how) & np.isfinite(table[measure])), "screened", "estimated harm (bits)",
        _WORDS[measure],
    )  # fmt: skip
    chart.diagonal("estimate = harm", "screened", measure)
    for chosen, of, colour in chart.by("chosen"):
        at = zip(of.table["layer"], of.table["head"], strict=True)
        of.dots(measure, chosen, colour, 7, text=[f"layer {layer} head {head}" for layer, head in at])
    reading = (
        f"Estimated and measured harm of each head ({how} ablation), with 95 % intervals. On the dashed line the "
        "estimate is exact. Random heads represent all heads that were not selected. No null is drawn."
    )
    return Figure("screen", "How accurate is the estimate from gradients?", reading, chart.plot, "by_head")


def _layers(table: Table) -> Figure:
    measure = _measure(table)
    chart = Chart(table, "layer", "layer", _WORDS[measure])
    for part, of, colour in chart.by("part"):
        bars = error_bars(of.table, measure, NULL)
        chart.plot.add_bar(x=of.across, y=of.table[measure], name=part, marker={"color": colour}, error_y=bars)
    chart.plot.update_layout(barmode="group")
    reading = (
        "Harm when a layer is bypassed, or its attention or feed-forward block switched off, with 95 % intervals. A "
        "layer at 0 is not needed while the others are there. The null is 0: nothing switched off."
    )
    return Figure("by_layer", "Layers switched off", reading, chart.plot, "by_layer")


def _sets(table: Table) -> Figure:
    chart = Chart(table, "n_heads", "heads removed together", "harm (bits)")
    chart.curve("joint", "random sets", PALETTE[0])
    chart.curve("summed", "null: sum of their members", NULL)
    chart.curve("top", "most harmful", PALETTE[1])
    chart.plot.update_xaxes(type="log", tickvals=chart.across, ticktext=[str(k) for k in chart.across])
    reading = (
        "Above the null (the sum of their members' harms), heads of a random set compensate for one another: each "
        "seems dispensable until the others are gone. Below it, their harms overlap. The most harmful together can do "
        "less than fewer of them: KL saturates once the prediction is lost. Bands are 95 % over prompts."
    )
    return Figure("sets", "Do effects add up?", reading, chart.plot, "sets")
