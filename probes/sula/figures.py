"""The figures of the SULA probe, from its findings alone."""

import html
from typing import TYPE_CHECKING

import numpy as np

from interp.drawing import ENTROPY_SCALE, PALETTE, add_curve, add_line, add_null_band, blank, coloured
from interp.findings import Findings
from interp.probe import Figure
from interp.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects as go

_AXIS_WORDS = {"pc1": "first principal axis", "ridge": "ridge readout of the exact entropy"}


def sula_figures(findings: Findings) -> tuple[Figure, ...]:
    """Trajectories of values and entropies, calibration, movement by layer, attention."""
    tables = findings.tables
    answers = tables["answers"]
    main = str(tables["by_condition"]["condition"][0])
    return (
        *(_trajectory(tables["trajectories"], axis) for axis in _AXIS_WORDS),
        _entropy(tables["along_evidence"]),
        _calibration(answers.where(answers["condition"] == main)),
        *([_log_odds(answers, main)] if "exact_log_odds" in answers else []),
        _by_layer(tables["movement"], main),
        _attention(tables["attention"], main),
    )


def _amount(table: Table) -> str:
    return f"evidence ({table.units['evidence']})"


def _trajectory(table: Table, axis: str) -> Figure:
    plot = blank(_amount(table), f"coordinate along the {_AXIS_WORDS[axis]} (deviations)")
    mine = table.where(table["axis"] == axis)
    for i, (condition, curve, colour) in enumerate(coloured(mine, "condition")):
        if i == 0:
            bounds = (curve["coordinate_null_low"], curve["coordinate_null_high"])
            add_null_band(plot, curve["evidence"], bounds)
        add_curve(plot, curve["evidence"], curve, "coordinate", condition, colour)
    reading = (
        "Mean coordinate of held-out prompts, with 95 % bands. Inside the grey band, the null, the first condition "
        "does not move. A condition that moves without evidence follows length or format."
    )
    title = "Values as evidence accumulates: " + ("PC1" if axis == "pc1" else "trained axis")
    return Figure(f"trajectory_{axis}", title, reading, plot, "trajectories")


def _entropy(table: Table) -> Figure:
    plot = blank(_amount(table), "entropy over the outcomes (bits)")
    for i, (condition, curve, colour) in enumerate(coloured(table, "condition")):
        if i == 0:
            constant = float(curve["bayes_entropy"] @ curve["n"] / curve["n"].sum())
            ends = [float(curve["evidence"].min()), float(curve["evidence"].max())]
            add_line(plot, ends, [constant, constant], "null: no skill (mean)", "solid")
        add_curve(plot, curve["evidence"], curve, "model_entropy", condition, colour)
        plot.add_scatter(
            x=curve["evidence"], y=curve["bayes_entropy"], name=f"{condition}, exact", mode="lines",
            line={"color": colour, "dash": "dash"}, showlegend=i == 0,
        )  # fmt: skip
    reading = (
        "Mean entropy of the model's answers with 95 % bands; dashed, in the same colour, that of the exact posterior. "
        "A calibrated model lies on the dashed line, one without skill on the grey line, the null."
    )
    return Figure("entropy", "Uncertainty as evidence accumulates", reading, plot, "along_evidence")


def _calibration(table: Table) -> Figure:
    plot = blank("entropy of the exact posterior (bits)", "entropy of the model's posterior (bits)")
    _by_evidence(plot, table, "bayes_entropy", "model_entropy")
    end = float(max(table["bayes_entropy"].max(), table["model_entropy"].max()))
    add_line(plot, [0.0, end], [0.0, end], "Bayes")
    mean = float(table["bayes_entropy"].mean())
    add_line(plot, [0.0, end], [mean, mean], "null: no skill (mean)", "dot")
    reading = (
        "Each point is one answer in the first condition. On the dashed line its entropy equals that of the exact "
        "posterior. A horizontal cloud is a constant answer; the dotted line, the null, is the best constant."
    )
    return Figure("calibration", "Is the uncertainty right?", reading, plot, "answers")


def _log_odds(table: Table, main: str) -> Figure:
    plot = blank("exact log-odds (bits)", "model log-odds (bits)")
    mine = table.where(table["condition"] == main)
    _by_evidence(plot, mine, "exact_log_odds", "model_log_odds")
    ends = np.array([mine["exact_log_odds"].min(), mine["exact_log_odds"].max()])
    add_line(plot, ends, ends, "Bayes")
    add_line(plot, ends, ends * 0, "null: evidence ignored", "dot")
    reading = (
        "Log-odds of one word over the other. The dashed line, Bayes' rule, has slope 1. A shift up or down is a "
        "preference for one word; a horizontal cloud ignores the evidence."
    )
    return Figure("log_odds", "Is the evidence weighed correctly?", reading, plot, "answers")


def _by_evidence(plot: "go.Figure", table: Table, x: str, y: str) -> None:
    """Every answer, coloured by how much it was shown."""
    plot.add_scatter(
        x=table[x], y=table[y], mode="markers", showlegend=False, customdata=_places(table),
        hovertemplate="%{customdata}<br>exact %{x:.2f}, model %{y:.2f} bits<extra></extra>",
        marker={
            "color": table["evidence"], "colorscale": ENTROPY_SCALE, "size": 6, "opacity": 0.6,
            "colorbar": {"title": {"text": html.escape(_amount(table)).replace(" (", "<br>(")}},
        },
    )  # fmt: skip


def _places(table: Table) -> list[str]:
    """What was asked, where the table holds it, else how much was shown."""
    if "text" in table:
        return [str(text) for text in table["text"]]
    shown = [f"evidence {amount:g}" for amount in table["evidence"]]
    return (
        [f"sequence {p}, {words}" for p, words in zip(table["prompt"], shown, strict=True)]
        if "prompt" in table
        else shown
    )


def _by_layer(table: Table, main: str) -> Figure:
    plot = blank("layer", "rank correlation with the amount of evidence")
    chosen = table.where(
        (table["what"] == "values") & (table["condition"] == main) & (table["first"] == "in")
        & (table["variable"] == "evidence")
    )  # fmt: skip
    for i, axis in enumerate(_AXIS_WORDS):
        mine = chosen.where(chosen["axis"] == axis)
        if i == 0:
            add_null_band(plot, mine["layer"], (mine["rho_null_low"], mine["rho_null_high"]))
        add_curve(plot, mine["layer"], mine, "rho", _AXIS_WORDS[axis], PALETTE[i])
    reading = (
        "Correlation of the value coordinate of held-out prompts with the amount of evidence, by layer, with 95 % "
        "bands. Grey, the null: amounts permuted. In this condition length grows with the amount."
    )
    return Figure("by_layer", "Where do values move?", reading, plot, "movement")


def _attention(table: Table, main: str) -> Figure:
    plot = blank(_amount(table), "attention entropy (bits)")
    shown = np.isin(table["condition"], (main, "padded", "filler", "shuffled"))
    for condition, curve, colour in coloured(
        table.where(shown & (table["layer"] == table["layer"].max())), "condition"
    ):
        add_curve(plot, curve["evidence"], curve, "attention_entropy", condition, colour)
    reading = (
        "Entropy of the attention row in the last layer, mean over heads, with 95 % bands. Longer prompts have more "
        "keys: an increase that is absent at equal length is due to length. No null is drawn; compare with the padded "
        "and shuffled conditions."
    )
    return Figure("attention", "Attention as evidence accumulates", reading, plot, "attention")
