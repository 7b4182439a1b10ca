"""The figures of the belief probe, from its findings alone."""

from collections.abc import Mapping

import numpy as np

from interp.findings import Findings
from interp.plotting import NULL, PALETTE, VALUE, Chart, span
from interp.probe import Figure
from interp.table import Table

from ..measures.layers import DEPTH, SITE_WORDS
from ..measures.target import COLUMN, Target

_TIED = "equally likely"


def belief_figures(findings: Findings) -> tuple[Figure, ...]:
    """The belief beside its decoding, where it can be read, what it is compared with, and how it gathers."""
    by_layer = findings.tables["by_layer"]
    column = Target.of(by_layer, takes_names=True) if COLUMN in by_layer else None
    words = (column.words, column.many) if column else ("the exact posterior", "posteriors")
    slots = dict(zip(("belief", "beliefs"), words, strict=True))
    drawn = [_decoded(findings.tables["decoded"], slots), _by_site(by_layer, slots), _controls(findings, slots)]
    if np.isfinite(by_layer["silhouette"]).any():
        drawn.append(_silhouette(by_layer))
    drawn.append(_components(findings.tables["components"], slots))
    if "interchange" in findings.tables:
        drawn.append(_interchange(findings.tables["interchange"]))
    return tuple(drawn)


def _decoded(table: Table, slots: Mapping[str, str]) -> Figure:
    """Exact and decoded beliefs: side by side in a plane, or one against the other along a line."""
    table = table.where(np.argsort(table["state"], kind="stable"))
    is_plane = bool(table["exact_y"].any())
    x, y = ("first axis: exact", "second axis") if is_plane else (slots["belief"], f"{slots['belief']}, decoded")
    chart = Chart(table, "exact_x", x, y)
    if is_plane:
        # Ranges are written down, as axes that match lose an equal scale.
        x, y = (span(table[f"exact_{axis}"], table[f"decoded_{axis}"]) for axis in "xy")
        still = {"showgrid": False, "zeroline": False, "constrain": "domain"}
        chart.plot.update_layout(
            xaxis={"domain": [0, 0.48], "range": x, "constrain": "domain"},
            yaxis={"range": y, "scaleanchor": "x", "scaleratio": 1, "constrain": "domain"},
            xaxis2=still | {"domain": [0.52, 1], "title": {"text": "first axis: decoded"}, "range": x},
            yaxis2=still | {"anchor": "x2", "range": y, "scaleanchor": "x2", "scaleratio": 1, "showticklabels": False},
        )
    else:
        chart.diagonal("exact", "exact_x")
    for side in ("exact", "decoded") if is_plane else ("decoded",):
        axes = {"xaxis": "x2", "yaxis": "y2"} if is_plane and side == "decoded" else {}
        for i, (state, mine, _) in enumerate(chart.by("state")):
            name = _TIED if state < 0 else f"state {state}"
            colour = NULL if state < 0 else PALETTE[i % len(PALETTE)]
            x = mine.table[f"{side}_x" if is_plane else "exact_x"]
            y = f"{side}_y" if is_plane else "decoded_x"
            is_named = not is_plane or side == "exact"
            mine.points(y, name, colour, 5, x=x, legendgroup=name, showlegend=is_named, **axes)
    n_states = len(np.unique(table["state"][table["state"] >= 0]))
    shown = " in their triangle" if n_states == 3 else f" of {n_states} states, on the plane where they vary most"
    reading = (
        f"Left, exact {slots['beliefs']}{shown}; right, what a "
        "linear readout predicts of them in held-out sequences, coloured by the exact most likely state. The same "
        "shape on both sides means that the readout keeps where posteriors lie relative to one another."
        if is_plane
        else "Each point is a row of a held-out sequence. On the dashed line it is decoded exactly; a level cloud "
        "means that nothing is decoded."
    )
    reading += " The next figure compares with the null: shuffled posteriors."
    return Figure("simplex", f"What is decoded of {slots['belief']}", reading, chart.plot, "decoded")


def _by_site(table: Table, slots: Mapping[str, str]) -> Figure:
    chart = Chart(table, "layer", DEPTH, "held-out R² (fraction)")
    for site, mine, colour in chart.by("site"):
        mine.null_band("r2")
        mine.curve("r2", SITE_WORDS[site], colour, "solid")
        mine.curve("r2_beyond_position", f"{SITE_WORDS[site]}, beyond position", colour, "dot")
    cut = chart.limit_r2("r2", "r2_low", "r2_beyond_position")
    reading = (
        f"Share of the variance of {slots['belief']} that a linear readout predicts in held-out sequences, with 95 % "
        "bands. Dotted: the same after position is removed from both. The null: readouts fitted to "
        f"{slots['beliefs']} of other sequences.{cut}"
    )
    return Figure("r2_by_site", f"Where {slots['belief']} can be decoded", reading, chart.plot, "by_layer")


def _controls(findings: Findings, slots: Mapping[str, str]) -> Figure:
    table = findings.tables["by_layer"]
    site = str(table["site"][0])
    table = table.where(table["site"] == site)
    table = table.with_column("position", np.full(table.n_rows, findings["position_r2"].value), "fraction")
    chart = Chart(table, "layer", DEPTH, f"held-out R² (fraction, {SITE_WORDS[site]})")
    chart.curve("r2", slots["belief"], VALUE)
    for column, name, colour, dash, mode in (
        ("random_subspace_r2", "from random subspaces of its rank", PALETTE[1], "dash", "lines+markers"),
        ("control_r2", "control task", NULL, "dot", "lines+markers"),
        ("r2_null", f"null: permuted {slots['beliefs']}", NULL, "dash", "lines+markers"),
        ("position", "position alone", PALETTE[2], "longdash", "lines"),
    ):
        chart.line(column, name, dash, colour, mode=mode)
    cut = chart.limit_r2("position", "r2", "r2_low", "random_subspace_r2", "control_r2", "r2_null")
    reading = (
        f"The R² of {slots['belief']} and what to compare it with. Near random subspaces, any directions would do. "
        "Near the control task (random values for each token and position), identifying token and position is enough. "
        f"Near position alone, the readout uses no evidence.{cut}"
    )
    return Figure("controls", "More than token, position and chance?", reading, chart.plot, "by_layer")


def _silhouette(table: Table) -> Figure:
    chart = Chart(table, "layer", DEPTH, "mean silhouette by most likely state")
    for site, mine, colour in chart.by("site"):
        mine.null_band("silhouette")
        mine.curve("silhouette", SITE_WORDS[site], colour)
    reading = (
        "Near 1, the activations form one tight cluster for each most likely state; at 0, the clusters overlap; below "
        "0, most activations are nearer to another state's. The null: states of other sequences."
    )
    return Figure("silhouette", "Do activations cluster by state?", reading, chart.plot, "by_layer")


def _components(table: Table, slots: Mapping[str, str]) -> Figure:
    chart = Chart(table, "component", f"component of {slots['belief']}", "held-out R² (fraction)")
    chart.null_band("r2")
    chart.dots("r2", "readout")
    cut = chart.limit_r2("r2", "r2_low")
    reading = f"R² of each component at the primary layer, with 95 % bars. The null: permuted {slots['beliefs']}.{cut}"
    return Figure("components", "Is every component decoded?", reading, chart.plot, "components")


def _interchange(table: Table) -> Figure:
    chart = Chart(table, "depth", "residual depth", "closer to the source's posterior by (bits)")
    words = {
        "encoding": "directions it is written along", "readout": "directions it is read from",
        "principal": "principal axes", "all": "the whole stream",
    }  # fmt: skip
    for i, (name, label) in enumerate(words.items()):
        mine = chart.of(table.where(table["subspace"] == name))
        if i == 0:
            mine.null_band("redirected_bits", "null: random subspaces, 95 %")
        is_all = name == "all"
        mine.curve("redirected_bits", label, NULL if is_all else PALETTE[i], "dash" if is_all else "solid")
    reading = (
        "A few coordinates of the residual stream are replaced by those of another sequence, the source; the figure "
        "shows how far the prediction moves to the source's exact posterior. Near the dashed line, these directions "
        "carry all that matters at that depth; within the null band, no more than random ones."
    )
    return Figure("interchange", "Is the posterior used where it is decoded?", reading, chart.plot, "interchange")
