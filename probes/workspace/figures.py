"""The figures of the probe `workspace`, from its findings alone."""

import numpy as np

from interp.findings import Findings
from interp.plotting import Chart
from interp.probe import Figure

_DRAWN = {
    "overlap": ("Are the hypotheses in the J-space?", "share of the hypotheses' differences", ""),
    "survivors_accuracy": ("Does the J-space say which hypotheses survive?", "balanced accuracy", "whole_accuracy"),
    "uncertainty_r2": ("Does the J-space say how uncertain the model is?", "held-out R² (fraction)", "whole_r2"),
    "axis_share": ("Is the direction of uncertainty in the J-space?", "share of the direction", ""),
}


def workspace_figures(findings: Findings) -> tuple[Figure, ...]:
    """One figure for each number that was found, over depth."""
    table = findings.tables["by_depth"]
    drawn = []
    for name, (title, axis, whole) in _DRAWN.items():
        if not np.isfinite(table[name]).any():
            continue
        chart = Chart(table, "depth", "depth", axis).profile(name)
        if whole:
            chart.line(whole, "whole residual stream", "dot")
        null = "directions decoded from shuffled entropies" if name == "axis_share" else "its coordinates shuffled"
        reading = f"With 95 % intervals; the null is {null}: a curve within the band says nothing of the J-space."
        drawn.append(Figure(name, title, reading, chart.plot, "by_depth"))
    return tuple(drawn)
