"""The figures of the manifold probe, from its findings alone."""

import html
from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import (
    ENTROPY_SCALE,
    NULL,
    PALETTE,
    VALUE,
    add_band,
    add_curve,
    add_line,
    add_profile,
    add_slider,
    blank,
    coloured,
    error_bars,
    faded,
    within,
)
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table, number_columns
from interp.words import short

from ..measures.target import Target
from .collapse import MIXED
from .rarefaction import NOISE

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ORDER = "{prefix}_correlation"
_PROFILES = (
    ("pc1_plus_pc2_share", "Variance in the first plane, by depth", "PC1+PC2 share (fraction of variance)",
     "Above the grey band, the null, the plane contains more variance than for noise of the same size and column "
     "variances. The shaded band is the 95 % interval over prompts."),
    ("participation_ratio", "Directions in use, by depth", "participation ratio (dimensions)",
     "Below the grey band, the null, fewer directions share the variance than in noise of the same size."),
    ("axis_stability", "Would other prompts give the same axis?", "|cos| between PC1 of disjoint halves",
     "Above the grey band, the null, the first axes of two halves of the prompts are more similar than for noise."),
    (_ORDER, "Does PC1 follow {target}?", "|Spearman ρ| of PC1 and {target}",
     "Above the grey band, the null, PC1 correlates with {target} more than with permuted {targets}."),
    ("curve_order", "Does the curve follow {target}?", "|Spearman ρ| of position along the curve and {brief}",
     "The same for the position along a curve through the points, instead of a straight axis; grey is the null."),
    ("intrinsic_dimension", "Intrinsic dimension, by depth", "TwoNN dimension (dimensions)",
     "Below the grey band, the null, the points lie on a curved or clustered set, unlike a flat cloud of the same "
     "covariance."),
)  # fmt: skip


_MAGNITUDES = ("axis_stability", _ORDER, "curve_order")
_LOUD = 0.25
"""Share of PC1's variance from which the map names the one prompt that makes it."""

_PALE = ((0.0, "#f4f8fb"), (1.0, "#6fa8d6"))
"""A scale on all of which dark text can be read."""


def figures(findings: Findings) -> tuple[Figure, ...]:
    """The maps first, then every profile, the spectrum, and the domain comparison where there was one."""
    layer, target = primary_layer(findings), Target.of(findings.tables["by_layer"])
    drawn = [_map(findings, layer, target)]
    drawn += [_profile(findings.tables["by_layer"], target, *spec) for spec in _PROFILES]
    drawn += [_spectrum(findings.tables["spectrum"]), _explained(findings.tables["explained"])]
    drawn.append(_dropped(findings.tables["dropped"]))
    if "cross_projection" in findings.tables:
        drawn.append(_cross_projection(findings.tables["cross_projection"]))
    if "collapse" in findings.tables:
        drawn += [_collapse(findings.tables["collapse"]), _rarefaction(findings.tables["rarefaction"])]
    if "umap" in findings.tables:
        drawn.append(_umap(findings.tables["umap"], target))
    return tuple(drawn)


def primary_layer(findings: Findings) -> int:
    """The layer the headline was read at: it was stored with the findings."""
    return int(findings.arrays["primary_layer"].item())


def _map(findings: Findings, primary: int, target: Target) -> Figure:
    points, null = findings.tables["points"], findings.tables["null_points"]
    second = "pc2" in points
    axes = ("pc1", "pc2") if second else ("pc1",)
    plot = blank("PC1 (activation)", "PC2 (activation)")
    plot.add_scatter(
        x=null["pc1"], y=null["pc2"] if "pc2" in null else null["pc1"] * 0, mode="markers", name="null: noise of "
        "the same size",
        marker={"color": NULL, "size": 5, "opacity": 0.45}, hoverinfo="skip",
    )  # fmt: skip
    layer_of = points["layer"]
    layers = np.unique(layer_of)
    sought = points[target.name]
    for layer in layers:
        mine = points.where(layer_of == layer)
        texts, said = _hover(mine, target)
        plot.add_scatter(
            x=mine["pc1"], y=mine["pc2"] if second else mine["pc1"] * 0, mode="markers", name=f"layer {layer}",
            text=texts, hovertemplate=said, showlegend=False,
            marker={
                "color": mine[target.name], "colorscale": ENTROPY_SCALE, "cmin": float(sought.min()),
                "cmax": float(sought.max()), "size": 8, "colorbar": _scale_title(points, target),
            },
        )  # fmt: skip
    with_axis = [one for one in layers if _add_axis(plot, points.where(layer_of == one), axes, target)]
    of = [-1, *layers, *with_axis]
    shown = [[bool(layer == (primary if other < 0 else other)) for other in of] for layer in layers]
    add_slider(plot, [str(layer) for layer in layers], shown, int(np.flatnonzero(layers == primary)[0]))
    return Figure(
        "map", f"The manifold, coloured by {target.words}",
        "Each point is a prompt on the first two principal axes of a layer; the slider selects the layer. If colour "
        f"changes steadily along a curve, the manifold is ordered by {target.words}. The arrow is the {target.brief} "
        "axis: the direction in this plane along which it rises fastest (hover shows how much the plane explains). "
        "Grey, at the primary layer, is the null: noise." + _loudest(points.where(layer_of == primary)),
        plot, "points",
    )  # fmt: skip


def _loudest(points: Table) -> str:
    """A sentence where one prompt makes much of PC1's variance; empty where none does."""
    _, prompt = np.unique(points["prompt"], return_inverse=True)
    shares = np.bincount(prompt, weights=points["pc1"] ** 2)
    total, most = shares.sum(), int(shares.argmax())
    if not total > 0 or shares[most] < _LOUD * total:
        return ""
    text = str(points["text"][np.flatnonzero(prompt == most)[0]])
    return (
        f" One prompt alone, “{text}”, makes {100 * shares[most] / total:.0f} % of PC1's variance here: "
        "this axis mainly separates that prompt from the others."
    )


def _scale_title(table: Table, target: Target) -> dict[str, dict[str, str]]:
    return {"title": {"text": f"{html.escape(target.brief)}<br>({html.escape(table.units[target.name])})"}}


def _add_axis(plot: "go.Figure", points: Table, coordinates: tuple[str, ...], target: Target) -> bool:
    """An arrow along the gradient of the least-squares plane of the target over the coordinates; whether there is one.

    It reaches two standard deviations of the points along it to either side of their mean.
    """
    plane = np.stack([points[name] for name in coordinates], axis=1)
    sought = points[target.name] - points[target.name].mean()
    centred = plane - plane.mean(axis=0)
    slope = np.linalg.lstsq(centred, sought, rcond=None)[0]
    length = np.linalg.norm(slope)
    if not length > 0:
        return False
    told = 1 - float(((sought - centred @ slope) ** 2).sum() / (sought**2).sum())
    direction = slope / length
    ends = plane.mean(axis=0) + np.outer([-2, 2], direction) * (centred @ direction).std()
    plot.add_scatter(
        x=ends[:, 0], y=ends[:, 1] if len(coordinates) > 1 else np.zeros(2), mode="lines+markers",
        name=f"{target.brief} axis", line={"color": PALETTE[2], "width": 3},
        marker={
            "symbol": ["circle", "arrow"], "size": [1, 16], "angleref": "previous", "color": PALETTE[2], "opacity": 1,
            "line": {"width": 0},
        },
        hovertemplate=f"{html.escape(target.brief)} axis: this plane explains {told:.2f} of its variance"
        "<extra></extra>",
    )  # fmt: skip
    return True


def _hover(points: Table, target: Target) -> tuple[list[str], str]:
    """What is said of each point, and the template around it: its domain where there are several, and the target."""
    texts = [html.escape(str(text)) for text in points["text"]]
    if "domain" in points and len(np.unique(points["domain"])) > 1:
        texts = [f"{text}<br>{html.escape(str(d))}" for text, d in zip(texts, points["domain"], strict=True)]
    return texts, f"%{{text}}<br>%{{marker.color:.2f}} {html.escape(points.units[target.name])}<extra></extra>"


def _profile(table: Table, target: Target, spec: str, title: str, axis: str, reading: str) -> Figure:
    plot, column = blank("layer", target.say(axis)), target.say(spec)
    add_profile(plot, within(table, column) if spec in _MAGNITUDES else table, "layer", column)
    return Figure(column, target.say(title), target.say(reading), plot, "by_layer")


def _spectrum(table: Table) -> Figure:
    plot = blank("principal component", "share (fraction of variance)")
    across = table["component"]
    add_band(plot, across, (np.maximum(table["null_low"], 0), table["null_high"]), NULL)
    add_line(plot, across, table["null"], "null")
    add_curve(plot, across, table, "share", "measured", VALUE)
    reading = "Components above the grey line, the null, have more variance than those of noise of the same size."
    return Figure("spectrum", "The spectrum at the primary layer", reading, plot, "spectrum")


def _explained(table: Table) -> Figure:
    plot = blank("layer", "share of PC1's variance (fraction)")
    for factor, mine, colour in coloured(table, "factor"):
        plot.add_scatter(
            x=mine["layer"], y=mine["share"], name=factor, mode="lines+markers", legendgroup=factor,
            line={"color": colour},
        )  # fmt: skip
        plot.add_scatter(
            x=mine["layer"], y=mine["chance"], mode="lines", legendgroup=factor, showlegend=False, hoverinfo="skip",
            name=f"null, {factor}",
            line={"color": colour, "dash": "dot"},
        )  # fmt: skip
    reading = (
        "What else PC1 follows: each line is one property of the prompts; dotted, the null: what a property with as "
        "many values explains by chance."
    )
    return Figure("explained", "What PC1 follows", reading, plot, "explained")


def _collapse(table: Table) -> Figure:
    plot = blank("PC1+PC2 share (fraction of variance)", "")
    mixed, domains = table.where(table["set"] == MIXED), table.where(table["set"] != MIXED)
    base = float(mixed["share"][0])
    low, high = base + domains["share_change_null_low"], base + domains["share_change_null_high"]
    null = Table(number_columns("null", (low + high) / 2, (low, high)), {"null": "fraction"})
    plot.add_scatter(
        x=null["null"], y=domains["set"], mode="markers", name="null (domain labels permuted)",
        marker={"color": NULL, "symbol": "line-ns-open", "size": 10},
        error_x=error_bars(null, "null", faded(NULL, 0.4), 8.0),
    )  # fmt: skip
    for part, colour in ((mixed, PALETTE[1]), (domains, VALUE)):
        plot.add_scatter(
            x=part["share"], y=part["set"], mode="markers", name="mixed" if part is mixed else "one domain",
            marker={"color": colour, "size": 9},
            error_x=error_bars(part, "share", colour),
        )  # fmt: skip
    plot.add_vline(x=base, line={"color": PALETTE[1], "dash": "dot", "width": 1})
    reading = (
        "A domain to the right of its grey bar occupies fewer directions than prompts of all domains, at equal number "
        "and entropy. The dotted line is the mixed set."
    )
    return Figure("collapse", "Does one domain collapse?", reading, plot, "collapse")


def _dropped(table: Table) -> Figure:
    plot = blank("columns of largest variance left out", "PC1+PC2 share (fraction of variance)")
    add_profile(plot, table, "n_dropped", "pc1_plus_pc2_share")
    reading = (
        "If the curve falls to the grey band, the null, when columns of largest variance are left out, a few such "
        "dimensions make the plane."
    )
    return Figure("dropped", "Does the plane depend on a few dimensions?", reading, plot, "dropped")


def _cross_projection(table: Table) -> Figure:
    domains = list(dict.fromkeys(table["of"].tolist()))
    share, null = table["share"], table["share_null"]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = share / null
    is_out = (share < table["share_null_low"]) | (share > table["share_null_high"])
    cells = [f"<b>{short(x, 2)}</b>" if out else short(x, 2) for x, out in zip(times, is_out, strict=True)]
    said = [f"share {short(s)}, null {short(n)}" for s, n in zip(share, null, strict=True)]
    square = (len(domains), len(domains))
    plot = blank("variance of", "in the first plane of")
    plot.add_heatmap(
        x=domains, y=domains, z=times.reshape(square), colorscale=_PALE, zmin=0, textfont={"color": "#1b1d20"},
        text=np.array(cells).reshape(square), texttemplate="%{text}", customdata=np.array(said).reshape(square),
        hovertemplate="%{x} in the plane of %{y}: %{customdata}<extra></extra>",
        colorbar={"title": {"text": "share / null"}},
    )  # fmt: skip
    reading = (
        "Share of one domain's variance in the plane of other prompts, divided by its null, under permuted labels; "
        "bold where the share is outside the null's 95 % band. A diagonal above the rest of its row means that each "
        "domain varies along its own axes."
    )
    return Figure("cross_projection", "Do domains share their axes?", reading, plot, "cross_projection")


def _rarefaction(table: Table) -> Figure:
    plot = blank("prompts", "PC1+PC2 share (fraction of variance)")
    for name, mine, colour in coloured(table, "set"):
        words, colour, dash = (f"null: {name}", NULL, "dash") if name == NOISE else (name, colour, "solid")
        if name in (NOISE, MIXED):
            add_band(plot, mine["n"], (mine["low"], mine["high"]), colour)
        add_curve(plot, mine["n"], mine, "share", words, colour, dash)
    plot.update_xaxes(type="log", tickvals=np.unique(table["n"]))
    reading = (
        "Shares fall as prompts are added, in the null (noise) too: compare sets only at equal numbers of prompts."
    )
    return Figure("rarefaction", "The share depends on how many prompts", reading, plot, "rarefaction")


def _umap(table: Table, target: Target) -> Figure:
    plot = blank("UMAP 1", "UMAP 2")
    texts, said = _hover(table, target)
    plot.add_scatter(
        x=table["umap1"], y=table["umap2"], mode="markers", showlegend=False,
        text=texts, hovertemplate=said,
        marker={
            "color": table[target.name], "colorscale": ENTROPY_SCALE, "size": 8,
            "colorbar": _scale_title(table, target),
        },
    )  # fmt: skip
    reading = (
        "An illustration only: UMAP preserves neighbours, not distances, and can show clusters in noise. There is no "
        "null, because nothing is measured."
    )
    return Figure("umap", "UMAP of the primary layer (illustration)", reading, plot, "umap")
