"""The figures of the SULA probe, from its findings alone."""

import numpy as np

from interp.findings import Findings
from interp.plotting import PALETTE, Chart, scale_of
from interp.probe import Figure
from interp.table import Table

_AXES = {"pc1": ("PC1", "first principal axis"), "ridge": ("trained axis", "ridge readout of the exact entropy")}


def sula_figures(findings: Findings) -> tuple[Figure, ...]:
    """Trajectories of values and entropies, calibration, movement by layer."""
    tables = findings.tables
    main = str(tables["by_condition"]["condition"][0])
    answers = tables["answers"].where(tables["answers"]["condition"] == main)
    return (
        *(_trajectory(tables["trajectories"], axis) for axis in _AXES),
        _entropy(tables["along_evidence"]),
        _calibration(answers),
        *([_log_odds(answers)] if "exact_log_odds" in answers else []),
        _by_layer(tables["movement"], main),
    )


def _along_evidence(table: Table, y_title: str) -> Chart:
    return Chart(table, "evidence", f"evidence ({table.units['evidence']})", y_title)


def _trajectory(table: Table, axis: str) -> Figure:
    short, words = _AXES[axis]
    chart = _along_evidence(table.where(table["axis"] == axis), f"coordinate along the {words} (deviations)")
    for i, (condition, mine, colour) in enumerate(chart.by("condition")):
        if i == 0:
            mine.null_band("coordinate")
        mine.curve("coordinate", condition, colour)
    reading = (
        "Mean coordinate of held-out prompts, with 95 % bands. Inside the null band, the first condition "
        "does not move. A condition that moves without evidence follows length or format."
    )
    return Figure(f"trajectory_{axis}", f"Values as evidence accumulates: {short}", reading, chart.plot, "trajectories")


def _entropy(table: Table) -> Figure:
    chart = _along_evidence(table, "entropy over the outcomes (bits)")
    for i, (condition, mine, colour) in enumerate(chart.by("condition")):
        if i == 0:
            mean = float(np.average(mine.table["bayes_entropy"], weights=mine.table["n"]))
            mine.level(mean, "null: no skill (mean)", "solid")
        mine.curve("model_entropy", condition, colour)
        mine.line("bayes_entropy", f"{condition}, exact", "dash", colour, showlegend=i == 0)
    reading = (
        "Mean entropy of the model's answers with 95 % bands; dashed, in the same colour, that of the exact posterior. "
        "A calibrated model lies on the dashed line, one without skill on the null."
    )
    return Figure("entropy", "Uncertainty as evidence accumulates", reading, chart.plot, "along_evidence")


def _calibration(table: Table) -> Figure:
    x_title, y_title = "entropy of the exact posterior (bits)", "entropy of the model's posterior (bits)"
    chart = _answers(table, "bayes_entropy", "model_entropy", x_title, y_title)
    chart.level(float(table["bayes_entropy"].mean()), "null: no skill (mean)", "dot")
    reading = (
        "Each point is one answer in the first condition. On the dashed line its entropy equals that of the exact "
        "posterior. A horizontal cloud is a constant answer; the dotted line, the null, is the best constant."
    )
    return Figure("calibration", "Is the uncertainty right?", reading, chart.plot, "answers")


def _log_odds(table: Table) -> Figure:
    chart = _answers(table, "exact_log_odds", "model_log_odds", "exact log-odds (bits)", "model log-odds (bits)")
    chart.level(0.0, "null: evidence ignored", "dot")
    reading = (
        "Log-odds of one word over the other. The dashed line, Bayes' rule, has slope 1. A shift up or down is a "
        "preference for one word; a horizontal cloud ignores the evidence."
    )
    return Figure("log_odds", "Is the evidence weighed correctly?", reading, chart.plot, "answers")


def _answers(table: Table, x: str, y: str, x_title: str, y_title: str) -> Chart:
    """Every answer, coloured by how much it was shown, over the line of Bayes' rule."""
    chart = Chart(table, x, x_title, y_title)
    hover = "%{customdata}<br>exact %{x:.2f}, model %{y:.2f} bits<extra></extra>"
    scale = scale_of(table["evidence"], "evidence", table.units["evidence"])
    chart.points(y, colour=scale, customdata=_places(table), hovertemplate=hover)
    chart.diagonal("Bayes", x)
    return chart


def _places(table: Table) -> list[str]:
    """The text of each row, or the amount of evidence."""
    if "text" in table:
        return [str(text) for text in table["text"]]
    shown = [f"evidence {amount:g}" for amount in table["evidence"]]
    if "prompt" not in table:
        return shown
    return [f"sequence {p}, {words}" for p, words in zip(table["prompt"], shown, strict=True)]


def _by_layer(table: Table, main: str) -> Figure:
    chosen = {"condition": main, "first": "in", "variable": "evidence"}
    table = table.where(np.all([table[name] == value for name, value in chosen.items()], axis=0))
    chart = Chart(table, "layer", "layer", "rank correlation with the amount of evidence")
    for i, (axis, (_, words)) in enumerate(_AXES.items()):
        mine = chart.of(table.where(table["axis"] == axis))
        if i == 0:
            mine.null_band("rho")
        mine.curve("rho", words, PALETTE[i])
    reading = (
        "Correlation of the value coordinate of held-out prompts with the amount of evidence, by layer, with 95 % "
        "bands. The null: amounts permuted. In this condition length grows with the amount."
    )
    return Figure("by_layer", "Where do values move?", reading, chart.plot, "movement")
