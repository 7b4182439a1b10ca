"""The figures of the belief probe, from its findings alone."""

from collections.abc import Mapping

import numpy as np

from interp.drawing import (
    NULL,
    PALETTE,
    VALUE,
    add_curve,
    add_line,
    add_null_band,
    blank,
    coloured,
    error_bars,
    limit_r2,
    places,
)
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

from ..measures.target import COLUMN, Target
from .target import slots_of

_SITE_WORDS = {"v": "values", "z": "head outputs", "resid": "residual stream"}
_DEPTH = "layer (residual stream: depth)"
_TIED = "several alike"
Said = Mapping[str, str]
"""The exact belief in words, or the column in its place (`slots_of`)."""

_HOVER = "%{customdata}<extra>%{fullData.name}</extra>"


def figures(findings: Findings) -> tuple[Figure, ...]:
    """The belief beside its decoding, where it can be read, what it is compared with, and how it gathers."""
    by_layer = findings.tables["by_layer"]
    primary = str(by_layer["site"][0])
    mine = by_layer.where(by_layer["site"] == primary)
    said = slots_of(Target.of(by_layer, takes_names=True) if COLUMN in by_layer else None)
    drawn = [
        _simplex(findings.tables["decoded"], said), _by_site(by_layer, said), _controls(mine, primary, findings, said)
    ]  # fmt: skip
    if np.isfinite(by_layer["silhouette"]).any():
        drawn.append(_silhouette(by_layer))
    drawn.append(_components(findings.tables["components"], said))
    if "interchange" in findings.tables:
        drawn.append(_interchange(findings.tables["interchange"]))
    return tuple(drawn)


def _simplex(table: Table, said: Said) -> Figure:
    if not table["exact_y"].any():
        return _one_dimension(table, said)
    plot = blank(said["belief"], "second coordinate")
    whole = {axis: _whole(table[f"exact_{axis}"], table[f"decoded_{axis}"]) for axis in ("x", "y")}
    plot.update_layout(
        xaxis={"domain": [0, 0.48], "range": whole["x"], "constrain": "domain"},
        yaxis={"range": whole["y"], "scaleanchor": "x", "scaleratio": 1, "constrain": "domain"},
        xaxis2={"domain": [0.52, 1], "title": {"text": f"{said['belief']}, decoded"}, "showgrid": False,
                "zeroline": False, "range": whole["x"], "constrain": "domain"},
        yaxis2={"anchor": "x2", "range": whole["y"], "scaleanchor": "x2", "scaleratio": 1, "showticklabels": False,
                "zeroline": False, "constrain": "domain", "gridcolor": "rgba(128,128,128,0.2)"},
    )  # fmt: skip
    for side, axes in (("exact", ("x", "y")), ("decoded", ("x2", "y2"))):
        for i, (name, points) in enumerate(_by_state(table)):
            plot.add_scatter(
                x=points[f"{side}_x"], y=points[f"{side}_y"], xaxis=axes[0], yaxis=axes[1], mode="markers", name=name,
                legendgroup=name, showlegend=side == "exact", customdata=places(points), hovertemplate=_HOVER,
                marker={"color": _colour(i, name), "size": 5, "opacity": 0.6},
            )  # fmt: skip
    reading = (
        f"Left, exact {said['beliefs']} (a triangle of three states, else their first principal plane); right, "
        "what a linear readout finds of them in sequences it was not fitted on, coloured by the exact most likely "
        "state. The same shape on both sides means that their geometry lies in the activations. "
        "No null is drawn: the next figure has it."
    )
    return Figure("simplex", f"What is decoded of {said['belief']}", reading, plot, "decoded")


def _whole(*coordinates: np.ndarray) -> list[float]:
    """A range that holds them all with room at its ends: written down, as axes that match lose an equal scale."""
    low, high = float(np.min(coordinates)), float(np.max(coordinates))
    room = 0.05 * (high - low)
    return [low - room, high + room]


def _one_dimension(table: Table, said: Said) -> Figure:
    plot = blank(said["belief"], f"{said['belief']}, decoded")
    ends = [float(table["exact_x"].min()), float(table["exact_x"].max())]
    add_line(plot, ends, ends, "exact")
    for i, (name, points) in enumerate(_by_state(table)):
        plot.add_scatter(
            x=points["exact_x"], y=points["decoded_x"], mode="markers", name=name, customdata=places(points),
            hovertemplate=_HOVER,
            marker={"color": _colour(i, name), "size": 5, "opacity": 0.6},
        )  # fmt: skip
    reading = (
        "Each point is a row of a sequence that the readout was not fitted on; on the dashed line it is "
        "decoded exactly, and a level cloud tells nothing of it. No null is drawn: the next figure has it."
    )
    return Figure("simplex", f"What is decoded of {said['belief']}", reading, plot, "decoded")


def _by_state(table: Table) -> list[tuple[str, Table]]:
    states = np.unique(table["state"])
    return [(_TIED if s < 0 else f"state {s}", table.where(table["state"] == s)) for s in states]


def _colour(i: int, name: str) -> str:
    return NULL if name == _TIED else PALETTE[i % len(PALETTE)]


def _by_site(table: Table, said: Said) -> Figure:
    plot = blank(_DEPTH, "held-out R² (fraction)")
    for site, mine, colour in coloured(table, "site"):
        add_null_band(plot, mine["layer"], (mine["r2_null_low"], mine["r2_null_high"]))
        for column, dash, words in (("r2", "solid", ""), ("r2_beyond_position", "dot", ", beyond position")):
            add_curve(plot, mine["layer"], mine, column, _SITE_WORDS[site] + words, colour, dash)
    cut = limit_r2(plot, table["r2"], table["r2_low"], table["r2_beyond_position"])
    reading = (
        f"Share of the variance of {said['belief']} that a linear readout predicts in sequences it was not fitted on, "
        "with 95 % bands; dotted, once position is taken out of both; grey, refits on "
        f"{said['beliefs']} of other sequences.{cut}"
    )
    return Figure("r2_by_site", f"Where {said['belief']} can be read", reading, plot, "by_layer")


def _controls(table: Table, site: str, findings: Findings, said: Said) -> Figure:
    plot = blank(_DEPTH, f"held-out R² (fraction, {_SITE_WORDS[site]})")
    layer = table["layer"]
    add_curve(plot, layer, table, "r2", said["belief"], VALUE)
    others = (
        ("random_subspace_r2", "from random subspaces of its rank", PALETTE[1], "dash"),
        ("control_r2", "control task", NULL, "dot"),
        ("r2_null", f"null: permuted {said['beliefs']}", NULL, "dash"),
    )
    for column, words, colour, dash in others:
        plot.add_scatter(
            x=layer, y=table[column], name=words, mode="lines+markers", line={"color": colour, "dash": dash}
        )
    position = np.full(len(layer), findings["position_r2"].value)
    add_line(plot, layer, position, "position alone", "longdash", PALETTE[2])
    cut = limit_r2(plot, position, table["r2"], table["r2_low"], *(table[column] for column, *_ in others))
    reading = (
        f"What the R² of {said['belief']} has to be compared with. Near the line of random subspaces, any subspace "
        "would do; near the control task, telling tokens and positions apart is enough; near position alone, no "
        f"evidence is read.{cut}"
    )
    return Figure("controls", "More than token, position and luck?", reading, plot, "by_layer")


def _silhouette(table: Table) -> Figure:
    plot = blank(_DEPTH, "mean silhouette by most likely state")
    for site, mine, colour in coloured(table, "site"):
        add_null_band(plot, mine["layer"], (mine["silhouette_null_low"], mine["silhouette_null_high"]))
        add_curve(plot, mine["layer"], mine, "silhouette", _SITE_WORDS[site], colour)
    reading = (
        "Near 1 the activations fall into one tight group for each most likely state; at 0 the groups overlap. Grey: "
        "states of other sequences."
    )
    return Figure("silhouette", "Do activations gather by state?", reading, plot, "by_layer")


def _components(table: Table, said: Said) -> Figure:
    plot = blank(f"component of {said['belief']}", "held-out R² (fraction)")
    add_null_band(plot, table["component"], (table["r2_null_low"], table["r2_null_high"]))
    plot.add_scatter(
        x=table["component"], y=table["r2"], mode="markers", name="readout", marker={"color": VALUE, "size": 8},
        error_y=error_bars(table, "r2", VALUE),
    )  # fmt: skip
    cut = limit_r2(plot, table["r2"], table["r2_low"])
    reading = (
        "How well each component is read at the primary place; bars are 95 %, grey are permuted "
        f"{said['beliefs']}.{cut}"
    )
    return Figure("components", "Is every component read?", reading, plot, "components")


def _interchange(table: Table) -> Figure:
    plot = blank("residual depth", "nearer to the donor's posterior by (bits)")
    words = {
        "encoding": "written along", "readout": "read from", "principal": "principal axes", "all": "the whole stream",
    }  # fmt: skip
    for i, (name, label) in enumerate(words.items()):
        mine = table.where(table["subspace"] == name)
        if i == 0:
            null = (mine["redirected_bits_null_low"], mine["redirected_bits_null_high"])
            add_null_band(plot, mine["depth"], null, "null: random subspaces, 95 %")
        colour = NULL if name == "all" else PALETTE[i]
        add_curve(plot, mine["depth"], mine, "redirected_bits", label, colour, "dash" if name == "all" else "solid")
    reading = (
        "A sequence is given another one's coordinates in a few dimensions of the residual stream, and its prediction "
        "is compared with the other's exact posterior. Near the dashed line those dimensions carry all that matters at "
        "that depth; in the grey band they carry no more than random ones."
    )
    return Figure("interchange", "Is the belief used where it can be read?", reading, plot, "interchange")
