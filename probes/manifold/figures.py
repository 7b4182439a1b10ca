"""The figures of the manifold probe, from its findings alone."""

import html
from typing import TYPE_CHECKING

import numpy as np

from interp.findings import Findings
from interp.formatting import short
from interp.plotting import NULL, PALETTE, VALUE, Chart, add_slider, blank, error_bars, faded, scale_of, within
from interp.probe import Figure
from interp.table import Table

from ..measures.target import Target
from .collapse import MIXED

if TYPE_CHECKING:
    import plotly.graph_objects as go

_ORDER = "{prefix}_correlation"
_PROFILES = (
    ("pc1_plus_pc2_share", "Variance in the first plane, by depth", "PC1+PC2 share (fraction of variance)",
     "Above the null band, the plane contains more variance than for noise of the same size and column "
     "variances. The shaded band is the 95 % interval over prompts."),
    ("participation_ratio", "Directions in use, by depth", "participation ratio (dimensions)",
     "Below the null band, fewer directions share the variance than in noise of the same size."),
    ("axis_stability", "Would other prompts give the same axis?", "|cos| between PC1 of disjoint halves",
     "Above the null band, the first axes of two halves of the prompts are more similar than for noise."),
    (_ORDER, "Does PC1 follow {target}?", "|Spearman ρ| of PC1 and {target}",
     "Above the null band, PC1 correlates with {target} more than with permuted {targets}."),
    ("curve_order", "Does the curve follow {target}?", "|Spearman ρ| of position along the curve and {brief}",
     "The same for the position along a curve through the points, instead of a straight axis, with its null."),
    ("intrinsic_dimension", "Intrinsic dimension, by depth", "TwoNN dimension (dimensions)",
     "Below the null band, the points lie on a curved or clustered set, unlike a flat cloud of their covariance."),
)  # fmt: skip
_MAGNITUDES = ("axis_stability", _ORDER, "curve_order")
_SHARE = "PC1+PC2 share (fraction of variance)"
_LOUD = 0.25
"""Share of PC1's variance from which the map names the one prompt that makes it."""

_PALE = ((0.0, "#f4f8fb"), (1.0, "#6fa8d6"))
"""A scale on all of which dark text can be read."""


def manifold_figures(findings: Findings) -> tuple[Figure, ...]:
    """The maps first, then every profile, the spectrum, and the domain comparison where there was one."""
    tables = findings.tables
    layer, target = int(findings.arrays["primary_layer"].item()), Target.of(tables["by_layer"])
    drawn = [_map(tables["points"], tables["null_points"], layer, target)]
    drawn += [_profile(tables["by_layer"], target, *spec) for spec in _PROFILES]
    drawn.append(_spectrum(tables["spectrum"]))
    if "cross_projection" in tables:
        drawn.append(_cross_projection(tables["cross_projection"]))
    if "collapse" in tables:
        drawn.append(_collapse(tables["collapse"]))
    return tuple(drawn)


def _map(points: Table, null: Table, primary: int, target: Target) -> Figure:
    axes = ("pc1", "pc2") if "pc2" in points else ("pc1",)
    points, null = (x if "pc2" in x else x.with_column("pc2", x["pc1"] * 0, x.units["pc1"]) for x in (points, null))
    chart = Chart(points, "pc1", "PC1 (activation)", "PC2 (activation)")
    pale = {"color": NULL, "opacity": 0.45}
    chart.of(null).dots("pc2", "null: noise of the same size", NULL, 5, marker=pale, hoverinfo="skip")
    layers = np.unique(points["layer"])
    of_layer = {layer: points.where(points["layer"] == layer) for layer in layers}
    for layer, mine in of_layer.items():
        _add_points(chart.of(mine), target, points[target.name], f"layer {layer}")
    with_axis = [layer for layer, mine in of_layer.items() if _add_axis(chart.plot, mine, axes, target)]
    of = [primary, *layers, *with_axis]
    shown = [[bool(layer == other) for other in of] for layer in layers]
    add_slider(chart.plot, [str(layer) for layer in layers], shown, int(np.flatnonzero(layers == primary)[0]))
    return Figure(
        "map", f"The manifold, coloured by {target.words}",
        "Each point is a prompt on the first two principal axes of a layer; the slider selects the layer. If colour "
        f"changes steadily along a curve, the manifold is ordered by {target.words}. The arrow is the {target.brief} "
        "axis: the direction in this plane along which it rises fastest (hover shows how much the plane explains). "
        "The null, at the primary layer, is noise." + _loudest(of_layer[primary]),
        chart.plot, "points",
    )  # fmt: skip


def _loudest(points: Table) -> str:
    """A sentence on a prompt that has much of PC1's variance; empty where none has."""
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


def _add_points(chart: Chart, target: Target, whole: np.ndarray, name: str) -> None:
    """Points with their text, their domain where there are several, and the target."""
    points = chart.table
    texts = [html.escape(str(text)) for text in points["text"]]
    if "domain" in points and len(np.unique(points["domain"])) > 1:
        texts = [f"{text}<br>{html.escape(str(d))}" for text, d in zip(texts, points["domain"], strict=True)]
    unit = points.units[target.name]
    scale = scale_of(points[target.name], target.brief, unit, whole) | {"opacity": 1}
    hover = f"%{{text}}<br>%{{marker.color:.2f}} {html.escape(unit)}<extra></extra>"
    chart.points("pc2", name, scale, 8, text=texts, customdata=None, hovertemplate=hover, showlegend=False)


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
    r2 = 1 - float(((sought - centred @ slope) ** 2).sum() / (sought**2).sum())
    direction = slope / length
    ends = plane.mean(axis=0) + np.outer([-2, 2], direction) * (centred @ direction).std()
    plot.add_scatter(
        x=ends[:, 0], y=ends[:, 1] if len(coordinates) > 1 else np.zeros(2), mode="lines+markers",
        name=f"{target.brief} axis", line={"color": PALETTE[2], "width": 3},
        marker={
            "symbol": ["circle", "arrow"], "size": [1, 16], "angleref": "previous", "color": PALETTE[2], "opacity": 1,
            "line": {"width": 0},
        },
        hovertemplate=f"{html.escape(target.brief)} axis: this plane explains {r2:.2f} of its variance"
        "<extra></extra>",
    )  # fmt: skip
    return True


def _profile(table: Table, target: Target, spec: str, title: str, axis: str, reading: str) -> Figure:
    column = target.say(spec)
    chart = Chart(within(table, column) if spec in _MAGNITUDES else table, "layer", "layer", target.say(axis))
    return Figure(column, target.say(title), target.say(reading), chart.profile(column).plot, "by_layer")


def _spectrum(table: Table) -> Figure:
    chart = Chart(table, "component", "principal component", "share (fraction of variance)")
    chart.band((np.maximum(table["null_low"], 0), table["null_high"]))
    chart.line("null", "null")
    chart.curve("share", "measured")
    reading = "Components above the null have more variance than those of noise of the same size."
    return Figure("spectrum", "The spectrum at the primary layer", reading, chart.plot, "spectrum")


def _collapse(table: Table) -> Figure:
    chart = Chart(table, "share", _SHARE, "")
    mixed, domains = table.where(table["set"] == MIXED), table.where(table["set"] != MIXED)
    base = float(mixed["share"][0])
    for end in ("low", "high"):
        domains = domains.with_column(f"null_{end}", base + domains[f"share_change_null_{end}"], "fraction")
    domains = domains.with_column("null", (domains["null_low"] + domains["null_high"]) / 2, "fraction")
    chart.of(domains).dots(
        "null", "null (domain labels permuted)", NULL, 10, y=domains["set"], marker={"symbol": "line-ns-open"},
        error_x=error_bars(domains, "null", faded(NULL, 0.4), 8.0),
    )  # fmt: skip
    for part, name, colour in ((mixed, "mixed", PALETTE[1]), (domains, "one domain", VALUE)):
        chart.of(part).dots("share", name, colour, 9, y=part["set"])
    chart.plot.add_vline(x=base, line={"color": PALETTE[1], "dash": "dot", "width": 1})
    reading = (
        "A domain to the right of its null bar occupies fewer directions than prompts of all domains, at equal number "
        "and entropy. The dotted line is the mixed set."
    )
    return Figure("collapse", "Does one domain collapse?", reading, chart.plot, "collapse")


def _cross_projection(table: Table) -> Figure:
    domains = list(dict.fromkeys(table["of"].tolist()))
    share, null = table["share"], table["share_null"]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = share / null
    is_out = (share < table["share_null_low"]) | (share > table["share_null_high"])
    cells = [f"<b>{short(x, 2)}</b>" if out else short(x, 2) for x, out in zip(times, is_out, strict=True)]
    hover_texts = [f"share {short(s)}, null {short(n)}" for s, n in zip(share, null, strict=True)]
    square = (len(domains), len(domains))
    plot = blank("variance of", "in the first plane of")
    plot.add_heatmap(
        x=domains, y=domains, z=times.reshape(square), colorscale=_PALE, zmin=0, textfont={"color": "#1b1d20"},
        text=np.array(cells).reshape(square), texttemplate="%{text}", customdata=np.array(hover_texts).reshape(square),
        hovertemplate="%{x} in the plane of %{y}: %{customdata}<extra></extra>",
        colorbar={"title": {"text": "share / null"}},
    )  # fmt: skip
    reading = (
        "Share of one domain's variance in the plane of other prompts, divided by its null, under permuted labels; "
        "bold where the share is outside the null's 95 % band. A diagonal above the rest of its row means that each "
        "domain varies along its own axes."
    )
    return Figure("cross_projection", "Do domains share their axes?", reading, plot, "cross_projection")
