"""Figures of the query-key alignment: contrasts over depth with their null, matching heads, items, binding."""

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, PALETTE, VALUE, Chart, error_bars, head_map
from interp.probe import Figure
from interp.table import LABEL, Table


def alignment_figures(findings: Findings) -> tuple[Figure, ...]:
    """Contrast over depth and by head; items and binding where they are defined."""
    tables, heads = findings.tables, findings.tables["by_head"]
    gain = heads["logit_gain"] if "logit_gain" in heads else heads["logit"] - heads["logit_null"]  # earlier versions
    figures = [
        Figure(
            "contrast", "Selection by content, over depth",
            "How much more attended keys outweigh the others than with shuffled keys (another prompt's). At 0, content "
            "does not decide which keys are selected. Orange: without the first position.",
            _gains(tables["by_layer"]).plot, "by_layer",
        ),
        Figure(
            "matching", "Selection by content, head by head",
            "One square per head: the contrast in log2 weight minus that with shuffled keys. Red heads match content, "
            "blue heads avoid it, white heads equal the null.",
            head_map(heads, gain, "bits"), "by_head",
        ),
    ]  # fmt: skip
    if "items" in tables:
        reading = (
            "One dot per head. Below the dashed line (uniform attention over the items), a head favours likely items; "
            "near 0, its attention equals the posterior. The null: items relabelled at random."
        )
        title = "Attention compared with the exact posterior"
        figures.append(Figure("posterior", title, reading, _items(tables["items"]).plot, "items"))
    if "binding" in tables:
        reading = "Near 1, the key at a value position encodes the token before it; the null has tokens renamed."
        chart = _profile(tables["binding"], "binding", "share of key variance explained")
        title = "Binding: does the key of a value encode the token before it?"
        figures.append(Figure("binding", title, reading, chart.plot, "binding"))
    return tuple(figures)


def _gains(table: Table) -> Chart:
    if "logit_gain" not in table:  # records of earlier versions
        return _profile(table, "logit", "attended minus unattended, log2 weight (bits)")
    chart = Chart(table, "layer", "layer", "gain of the contrast in log2 weight (bits)")
    chart.line(0.0, "null: shuffled keys")
    chart.curve("logit_no_first_gain", "without the first position", PALETTE[1], "dash")
    chart.curve("logit_gain", "measured", VALUE)
    return chart


def _profile(table: Table, column: str, title: str) -> Chart:
    chart = Chart(table, "layer", "layer", title).profile(column)
    chart.plot.update_yaxes(rangemode="tozero")
    return chart


def _items(table: Table) -> Chart:
    heads = np.array([f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)])
    chart = Chart(table.with_column("name", heads, LABEL), "name", "layer.head", "KL(posterior || attention) (bits)")
    bars, marker = error_bars(table, "posterior_kl_null", NULL), {"symbol": "line-ew-open"}
    chart.dots("posterior_kl_null", "null: items relabelled", NULL, error_y=bars, marker=marker)
    chart.dots("posterior_kl", "measured")
    chart.line("posterior_kl_uniform", "uniform attention", "dash", PALETTE[1])
    chart.plot.update_xaxes(type="category")
    return chart
