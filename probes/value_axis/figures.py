"""The figures of the value axis, from its findings alone."""

import html

import numpy as np

from interp.findings import Findings, Null
from interp.formatting import short
from interp.plotting import NULL, PALETTE, VALUE, Chart
from interp.probe import Figure
from interp.table import LABEL, Table

from ..measures.layers import DEPTH, SITE_WORDS
from ..measures.target import Target


def axis_figures(findings: Findings) -> tuple[Figure, ...]:
    """Predicted against measured; R² by depth at all sites, and by axis at the primary one; what the axis is."""
    by_layer, axes = findings.tables["by_layer"], findings.tables["axes"]
    primary, target = str(by_layer["site"][0]), Target.of(by_layer)
    by_layer = by_layer.where(by_layer["target"] == target.name)
    axes = axes.where(axes["site"] == primary)
    mine = by_layer.where((by_layer["site"] == primary) & (by_layer["nuisances"] == "kept"))
    return (
        _held_out(findings.tables["held_out"], target, findings["r2"].null),
        _by_site(by_layer, target),
        _by_axis(mine, primary, target),
        _control(mine.where(mine["axis"] == "ridge"), axes, primary, target),
        _cosine(axes, primary, target),
    )


def _held_out(table: Table, target: Target, null: Null | None) -> Figure:
    what, unit = target.brief, table.units[target.name]
    named = table if "domain" in table else table.with_column("domain", np.full(table.n_rows, "prompts"), LABEL)
    chart = Chart(named, target.predicted, f"predicted {what} ({unit})", f"{what} ({unit})")
    hover = f"%{{customdata}}<br>%{{y:.2f}} {html.escape(unit)}, predicted %{{x:.2f}}<extra></extra>"
    for domain, mine, colour in chart.by("domain"):
        mine.points(target.name, str(domain), colour, hovertemplate=hover)
    chart.diagonal("exact", target.name)
    sought = table[target.name]
    mean, ends = float(sought.mean()), [float(sought.min()), float(sought.max())]
    chart.straight([mean, mean], ends, "predicting the mean: 0 explained", "dot")
    refitted = (
        "" if null is None else f" Readouts refitted on permuted {target.many}, the null, explain {short(null.value)}."
    )
    reading = (
        "Each point is a prediction for the half that the readout was not fitted on, at the layer that the answer "
        "names; the answer is a mean over many splits into halves. On the dashed line it is exact; along the dotted "
        f"one it would explain nothing.{refitted}"
    )
    return Figure("held_out", f"{target.title} predicted by a linear readout", reading, chart.plot, "held_out")


def _by_site(table: Table, target: Target) -> Figure:
    chart = Chart(table.where(table["axis"] == "ridge"), "layer", DEPTH, "held-out R² (fraction)")
    primary = str(chart.table["site"][0])
    for site, of_site, colour in chart.by("site"):
        for nuisances, mine, _ in of_site.by("nuisances"):
            if nuisances != "kept":
                name = f"{SITE_WORDS[site]}, within the last token"
                mine.line("r2", name, "dot", colour, mode="lines+markers")
                continue
            mine.null_band("r2")
            if site == primary:  # three overlapping bands would be illegible
                mine.curve("r2", SITE_WORDS[site], colour, "solid")
            else:
                mine.line("r2", SITE_WORDS[site], "solid", colour, mode="lines+markers")
    cut = chart.limit_r2("r2", "r2_low")
    reading = (
        f"Share of the variance of {target.words} that a ridge readout explains in held-out prompts, with the 95 % "
        f"interval for the {SITE_WORDS[primary]} (the table has the others). Dotted: beyond everything the last token "
        f"determines. The null: refits on permuted {target.many}.{cut}"
    )
    return Figure("r2_by_site", f"Where the {target.brief} can be decoded", reading, chart.plot, "by_layer")


def _by_axis(table: Table, site: str, target: Target) -> Figure:
    chart = Chart(table, "layer", DEPTH, f"held-out correlation ({SITE_WORDS[site]})")
    for axis, name, colour in (("ridge", "ridge", PALETTE[0]), ("pc1", "PC1", PALETTE[1])):
        mine = chart.of(table.where(table["axis"] == axis))
        mine.null_band("correlation")
        mine.curve("correlation", name, colour)
    reading = (
        f"Correlation of {target.words} in held-out prompts with a trained readout and with the first principal axis. "
        f"The gap is what PC1 misses as a {target.brief} axis. The null: refits on permuted {target.many}."
    )
    return Figure("pc1_against_ridge", "PC1 against a trained readout", reading, chart.plot, "by_layer")


def _control(task: Table, axes: Table, site: str, target: Target) -> Figure:
    chart = Chart(task, "layer", DEPTH, f"held-out R² (fraction, {SITE_WORDS[site]})")
    chart.curve("r2", target.brief, VALUE)
    chart.of(axes).curve("control_r2", "null: random labels of token types", NULL, "dash")
    cut = chart.limit_r2("r2", "r2_low", axes["control_r2"])
    reading = (
        "The null: the same readout trained on random labels of token types. Where it comes near the blue line, "
        f"the identity of the token is enough.{cut}"
    )
    return Figure("selectivity", f"{target.title}, or the token?", reading, chart.plot, "axes")


def _cosine(axes: Table, site: str, target: Target) -> Figure:
    chart = Chart(axes, "layer", DEPTH, f"|cos| of PC1 and ridge ({site})").profile("cosine")
    reading = (
        f"Near 1, the first principal axis predicts {target.words}. There is no null, because an axis of large "
        "variance attracts any readout, even of noise: compare the R² of both axes."
    )
    return Figure("cosine", "Is PC1 the predictive direction?", reading, chart.plot, "axes")
