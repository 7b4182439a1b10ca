"""The figures of the value axis, from its findings alone."""

import html

import numpy as np

from interp.drawing import (
    NULL,
    PALETTE,
    VALUE,
    add_curve,
    add_line,
    add_null_band,
    add_profile,
    blank,
    coloured,
    limit_r2,
    places,
    within,
)
from interp.findings import Findings
from interp.probe import Figure
from interp.table import LABEL, Table

from ..measures.target import Target

_SITE_WORDS = {"v": "values", "z": "head outputs", "resid": "residual stream"}
_DEPTH = "layer (residual stream: depth)"


def axis_figures(findings: Findings) -> tuple[Figure, ...]:
    """Predicted against measured; R² by depth at all sites, and by axis at the primary one; what the axis is."""
    by_layer, axes = findings.tables["by_layer"], findings.tables["axes"]
    primary, target = str(by_layer["site"][0]), Target.of(by_layer)
    by_layer = by_layer.where(by_layer["target"] == target.name)
    mine = axes.where(axes["site"] == primary)
    drawn = (
        _held_out(findings.tables["held_out"], target),
        _by_site(by_layer, target),
        _by_axis(by_layer.where(by_layer["site"] == primary), primary, target),
        _control(by_layer, axes, primary, target),
        _profile(
            mine, "cosine", "Is PC1 the predictive direction?", f"|cos| of PC1 and ridge ({primary})",
            f"Near 1, the first principal axis predicts {target.words}. There is no null, because an axis of large "
            "variance attracts any readout, even of noise: compare the R² of both axes.",
        ),
        _profile(
            mine, "stability", "Would other prompts give the same axis?", f"|cos| between disjoint halves ({primary})",
            "Near 1, the ridge axis hardly depends on the prompts it is fitted to; in the grey band, it is no more "
            "stable than random directions with the same covariance.",
        ),
    )  # fmt: skip
    return drawn


def _held_out(table: Table, target: Target) -> Figure:
    what, unit = target.brief, table.units[target.name]
    plot = blank(f"predicted {what} ({unit})", f"{what} ({unit})")
    named = table if "domain" in table else table.with_column("domain", np.full(table.n_rows, "prompts"), LABEL)
    for group, mine, colour in coloured(named, "domain"):
        plot.add_scatter(
            x=mine[target.predicted], y=mine[target.name], mode="markers", name=str(group),
            customdata=places(mine),
            hovertemplate=f"%{{customdata}}<br>%{{y:.2f}} {html.escape(unit)}, predicted %{{x:.2f}}<extra></extra>",
            marker={"color": colour, "size": 6, "opacity": 0.6},
        )  # fmt: skip
    ends = [float(table[target.name].min()), float(table[target.name].max())]
    mean = float(table[target.name].mean())
    add_line(plot, ends, ends, "exact")
    add_line(plot, [mean, mean], ends, "null: predicting the mean", "dot")
    reading = (
        "Each point is a held-out prompt, at the primary layer. On the dashed line the prediction is exact; a cloud "
        "along the dotted vertical line would predict nothing."
    )
    return Figure("held_out", f"{target.title} predicted by one direction", reading, plot, "held_out")


def _by_site(table: Table, target: Target) -> Figure:
    plot = blank(_DEPTH, "held-out R² (fraction)")
    chosen = table.where(table["axis"] == "ridge")
    primary = str(chosen["site"][0])
    for site, of_site, colour in coloured(chosen, "site"):
        for nuisances, mine in of_site.groups("nuisances"):
            if nuisances == "kept":
                add_null_band(plot, mine["layer"], (mine["r2_null_low"], mine["r2_null_high"]))
            if nuisances == "kept" and site == primary:  # three bands over one another could not be told apart
                add_curve(plot, mine["layer"], mine, "r2", _SITE_WORDS[site], colour, "solid")
            else:
                words, dash = ("", "solid") if nuisances == "kept" else (", within the last token", "dot")
                plot.add_scatter(
                    x=mine["layer"], y=mine["r2"], name=f"{_SITE_WORDS[site]}{words}",
                    mode="lines+markers", line={"color": colour, "dash": dash},
                )  # fmt: skip
    cut = limit_r2(plot, chosen["r2"], chosen["r2_low"])
    reading = (
        f"Share of the variance of {target.words} that a ridge readout explains in held-out prompts, with the 95 % "
        f"interval for the {_SITE_WORDS[primary]} (the table has the others). Dotted: beyond everything the last token "
        f"determines. Grey, the null: refits on permuted {target.many}.{cut}"
    )
    return Figure("r2_by_site", f"Where the {target.brief} can be decoded", reading, plot, "by_layer")


def _by_axis(table: Table, site: str, target: Target) -> Figure:
    plot = blank(_DEPTH, f"held-out correlation ({_SITE_WORDS[site]})")
    chosen = table.where(table["nuisances"] == "kept")
    for i, (axis, words) in enumerate((("ridge", "ridge"), ("pc1", "PC1"))):
        mine = chosen.where(chosen["axis"] == axis)
        add_null_band(plot, mine["layer"], (mine["correlation_null_low"], mine["correlation_null_high"]))
        add_curve(plot, mine["layer"], mine, "correlation", words, PALETTE[i])
    reading = (
        f"Correlation of {target.words} in held-out prompts with a trained readout and with the first principal axis. "
        f"The gap is what PC1 misses as a {target.brief} axis. Grey, the null: refits on permuted {target.many}."
    )
    return Figure("pc1_against_ridge", "PC1 against a trained readout", reading, plot, "by_layer")


def _control(by_layer: Table, axes: Table, site: str, target: Target) -> Figure:
    plot = blank(_DEPTH, f"held-out R² (fraction, {_SITE_WORDS[site]})")
    task = by_layer.where(
        (by_layer["site"] == site) & (by_layer["axis"] == "ridge") & (by_layer["nuisances"] == "kept")
    )  # fmt: skip
    control = axes.where(axes["site"] == site)
    add_curve(plot, task["layer"], task, "r2", target.brief, VALUE)
    add_curve(plot, control["layer"], control, "control_r2", "null: random labels of token types", NULL, "dash")
    cut = limit_r2(plot, task["r2"], task["r2_low"], control["control_r2"])
    reading = (
        "Grey, the null: the same readout trained on random labels of token types. Where it comes near the blue line, "
        f"the identity of the token is enough.{cut}"
    )
    return Figure("selectivity", f"{target.title}, or the token?", reading, plot, "axes")


def _profile(table: Table, column: str, title: str, axis: str, reading: str) -> Figure:
    plot = blank(_DEPTH, axis)
    add_profile(plot, within(table, column) if f"{column}_low" in table else table, "layer", column)
    return Figure(column, title, reading, plot, "axes")
