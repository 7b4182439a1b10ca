"""The study `primitives`: which architectures accumulate evidence, carry a belief along, and bind?

Source: Paper I (arXiv 2512.22471), version 3: accumulation, transport and binding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from interp.findings import Findings, Null, Scalar
from interp.model import Model
from interp.plotting import Chart
from interp.probe import Figure
from interp.records.tunnel_card import read_card
from interp.table import Table
from interp.tunnel import Task

from ...evaluation.evaluation import BEYOND_WINDOW, WINDOW_NULL, figure_scalar
from ...validation import DISTINCT
from ..over_seeds import (
    Rows,
    TrainedStudy,
    Trainings,
    difference_scalar,
    mean_over_seeds,
    mean_scalar,
    values_of,
)

MEASURES: Mapping[str, tuple[str, str, str]] = {
    "kl_bits": ("kl_bits", "error", "KL(exact posterior || prediction)"),
    "error_bits": ("mae_per_sequence_bits", "error", "mean distance of the predictive entropy from the exact one"),
    "accuracy": ("accuracy_where_certain", "share", "share of cues answered with the stored value"),
}
"""By suffix of a number's name the figure of a card, its kind and meaning; only recall has the accuracy."""

_BLIND = ("uniform", "constant", "position")
"""Predictors that do not look at the sequence."""


@dataclass(frozen=True)
class Primitives(TrainedStudy):
    """Trainings of every network on every task with every seed.

    `tasks`: bijection (without replacement), hmm, recall. `networks`: architectures of the tunnels, and `lstm-bare`,
    the papers' nine layers without residual connections. `seeds`: rates were chosen on 0. `size`: `small`, two layers
    and minutes per training, or `papers`, which needs a GPU. `n_steps` shortens.
    """

    tasks: tuple[str, ...] = ("bijection", "hmm", "recall")
    networks: tuple[str, ...] = ("gpt-neox", "lstm", "mlp-context", "mlp-position")
    seeds: tuple[int, ...] = (1, 2, 3)
    size: Literal["small", "papers"] = "small"
    n_steps: int | None = None

    name: ClassVar[str] = "primitives"
    question: ClassVar[str] = "Which architectures accumulate evidence, carry a belief along, and bind?"
    rules: ClassVar = dict.fromkeys(("tasks", "networks", "seeds"), DISTINCT)

    more: ClassVar = {"parameters": "parameters", "steps": "steps", "core_seconds": "s"} | {
        f"{blind}_kl_bits": "bits" for blind in _BLIND
    }

    @property
    def headline(self) -> tuple[str, ...]:  # pyrefly: ignore[bad-override]
        return tuple(_key(task, name, "kl_bits") for task, name in product(self.tasks, self.networks))

    @property
    def notes(self) -> tuple[str, ...]:
        from .plans import is_tuned

        pairs = product(self.tasks, self.networks)
        untuned = [f"{name} on {task}" for task, name in pairs if not is_tuned(task, name, self.size)]
        found = ["Networks of a task are matched in parameters, steps and sequences; intervals say nothing of other "
                 "sizes, budgets or rates."]  # fmt: skip
        if untuned:
            found.append(f"Nobody has chosen the rates of these: {', '.join(untuned)}. A failure may be theirs.")
        if self.n_steps is not None:
            found.append(f"Trainings have {self.n_steps} steps; rates were chosen for the recipe's own number.")
        return tuple(found)

    def trainings(self) -> Trainings:
        from .plans import plan_of

        for task, name, seed in product(self.tasks, self.networks, self.seeds):
            yield {"task": task, "network": name}, plan_of(task, name, seed, self.size, self.n_steps)

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        card = read_card(Path(model.name))
        found: dict[str, Any] = {"parameters": card.n_parameters, "steps": card.step}
        for ending, (figure, _, words) in MEASURES.items():
            if ending != "accuracy":
                null, chance = "uniform over the answers", card.baselines["uniform"][figure]
            elif task.name == "recall":
                null, chance = "one of the stored values at random", 1 / int(card.parameters["n_pairs"])
            else:
                continue
            found[ending] = figure_scalar(
                card.figures[figure], Null(null, chance, (chance, chance)), card.n_eval, words
            )
        if BEYOND_WINDOW in card.figures:  # of hmm, but for cards of before this figure
            words = "KL less that of the best reader of the last observations alone"
            found[BEYOND_WINDOW] = figure_scalar(card.figures[BEYOND_WINDOW], WINDOW_NULL, card.n_eval, words)
        found |= {f"{blind}_kl_bits": card.baselines[blind]["kl_bits"] for blind in _BLIND}
        return found | {"core_seconds": card.core_seconds}

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        return card_scalars(rows)

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        """Every training as a point: how far it is from the posterior, task by task."""
        runs = findings.tables["networks"]
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
            "A point is one training, a bar its interval over sequences; networks of a task have equally many "
            "parameters and saw the same sequences. At the dashed line nothing of the sequence is used."
        )
        return (Figure("by_network", "How far each network is from the posterior", reading, plot, "networks"),)


def card_scalars(rows: Rows) -> dict[str, Scalar]:
    """Means of the figures over seeds, differences from the reference network, and dissociations between tasks."""
    from .plans import REFERENCE

    means, beyond = dict[str, Scalar](), dict[str, Scalar]()
    lacking: dict[tuple[str, str], np.ndarray] = {}
    pairs = dict.fromkeys((row["task"], row["network"]) for row in rows)
    for task, name in pairs:
        mine = [row for row in rows if (row["task"], row["network"]) == (task, name)]
        for ending, (_, kind, words) in MEASURES.items():
            key, values = _key(task, name, ending), values_of(mine, ending)
            if not values:
                continue
            means[key] = mean_scalar(values, kind, mine[0][ending].null, f"{words}: {name} on {task}")
            if ending != "error_bits" and name != REFERENCE and (task, REFERENCE) in pairs:
                theirs = values_of(rows, ending, task=task, network=REFERENCE)
                meaning = f"{words}, {name} less {REFERENCE}, on {task}"
                beyond[f"{key}_beyond_{_word(REFERENCE)}"] = difference_scalar(
                    values, theirs, "difference" if kind == "share" else "bits", meaning
                )
        if values := values_of(mine, BEYOND_WINDOW):
            meaning = f"{mine[0][BEYOND_WINDOW].meaning}: {name} on {task}"
            beyond[_key(task, name, BEYOND_WINDOW)] = mean_over_seeds(values, "bits", WINDOW_NULL, meaning)
        lacking[task, name] = np.divide(values_of(mine, "kl_bits"), mine[0]["kl_bits"].null.value)
    tasks = dict.fromkeys(task for task, _ in pairs)
    if len(tasks) > 1:
        beyond |= {f"{task}_dissociated": dissociation(lacking, task) for task in tasks}
    return means | beyond


def dissociation(lacking: Mapping[tuple[str, str], np.ndarray], task: str) -> Scalar:
    """How much a network fails one task more than every other; the other seeds choose the network.

    `lacking` is by task and network the KL of every seed, as a share of the uniform predictor's.
    """
    networks, others = ([*dict.fromkeys(key[i] for key in lacking)] for i in (1, 0))
    others.remove(task)
    gaps = np.array([lacking[task, n] - np.max([lacking[other, n] for other in others], axis=0) for n in networks])
    chosen = [int(np.delete(gaps, i, axis=1).sum(axis=1).argmax()) for i in range(gaps.shape[1])]
    names = ", ".join(dict.fromkeys(networks[i] for i in chosen))
    return mean_over_seeds(
        list(gaps[chosen, np.arange(len(chosen))]), "fraction", Null("no dissociation", 0.0, (0.0, 0.0)),
        f"KL on {task} less the larger KL on the other tasks, each over the uniform predictor's, of the network that "
        f"the other seeds choose ({names})",
    )  # fmt: skip


def _key(task: str, name: str, ending: str) -> str:
    return f"{task}_{_word(name)}_{ending}"


def _word(name: str) -> str:
    return name.replace("-", "_")
