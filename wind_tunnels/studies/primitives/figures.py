"""The figure of the study `primitives`, from its findings alone."""

import numpy as np

from interp.findings import Findings
from interp.plotting import Chart
from interp.probe import Figure


def primitive_figures(findings: Findings) -> tuple[Figure, ...]:
    """Every training as a point: how far it is from the posterior, task by task."""
    runs = findings.tables["runs"]
    tasks = list(dict.fromkeys(str(task) for task in runs["task"]))
    chart = Chart(runs, "task", "task", "KL from the exact posterior (bits)")
    networks = list(chart.by("network"))
    for i, (name, mine, colour) in enumerate(networks):
        place = np.array([tasks.index(str(task)) for task in mine.across]) + (i + 1) / (len(networks) + 1) - 0.5
        mine.dots("kl_bits", str(name), colour, 9, x=place, marker={"symbol": i})
    plot = chart.plot
    for i, task in enumerate(tasks):
        blind = float(runs["uniform_kl_bits"][runs["task"] == task].mean())
        chart.straight([i - 0.45, i + 0.45], [blind, blind], "uniform over the answers")
        plot.update_traces(showlegend=i == 0, selector=len(networks) + i)
    plot.update_yaxes(type="log")
    plot.update_xaxes(tickvals=list(range(len(tasks))), ticktext=tasks)
    reading = (
        "A point is one training with a seed of its own; networks of a task have equally many parameters and saw the "
        "same sequences. At the dashed line nothing of the sequence is used."
    )
    return (Figure("by_network", "How far each network is from the posterior", reading, plot, "runs"),)
