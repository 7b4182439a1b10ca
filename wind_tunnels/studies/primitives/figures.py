"""The figure of the study `primitives`, from its findings alone."""

import numpy as np

from interp.drawing import NULL, PALETTE, blank
from interp.findings import Findings
from interp.probe import Figure


def primitive_figures(findings: Findings) -> tuple[Figure, ...]:
    """Every training as a point: how far it is from the posterior, task by task."""
    runs = findings.tables["runs"]
    tasks = list(dict.fromkeys(str(task) for task in runs["task"]))
    plot = blank("task", "KL from the exact posterior (bits)")
    networks = list(dict.fromkeys(str(name) for name in runs["network"]))
    for i, name in enumerate(networks):
        mine = runs.where(runs["network"] == name)
        place = np.array([tasks.index(str(task)) for task in mine["task"]]) + (i + 1) / (len(networks) + 1) - 0.5
        plot.add_scatter(
            x=place, y=mine["kl_bits"], mode="markers", name=name,
            marker={"color": PALETTE[i % len(PALETTE)], "size": 9, "symbol": i},
        )  # fmt: skip
    for i, task in enumerate(tasks):
        blind = float(runs["uniform_kl_bits"][runs["task"] == task].mean())
        plot.add_scatter(
            x=[i - 0.45, i + 0.45], y=[blind, blind], mode="lines", name="uniform over the answers",
            line={"color": NULL, "dash": "dash"}, showlegend=i == 0,
        )  # fmt: skip
    plot.update_yaxes(type="log")
    plot.update_xaxes(tickvals=list(range(len(tasks))), ticktext=tasks)
    reading = (
        "A point is one training with a seed of its own; networks of a task have equally many parameters and saw the "
        "same sequences. At the dashed line nothing of the sequence is used."
    )
    return (Figure("by_network", "How far each network is from the posterior", reading, plot, "runs"),)
