"""The study `primitives`: which architectures accumulate evidence, carry a belief along, and bind?

Source: Paper I (arXiv 2512.22471), version 3: accumulation, transport and binding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from interp.findings import Findings, Null, Scalar
from interp.plotting import Chart
from interp.probe import Figure
from interp.records.tunnel_card import TunnelCard
from interp.system.progress import Report
from interp.table import LABEL, Table

from ...validation import DISTINCT
from ..over_seeds import CheckedStudy, difference_scalar, mean_over_seeds, mean_scalar, models_table

Cards = Mapping[tuple[str, str], Sequence[TunnelCard]]
"""The cards of the trainings, one per seed, by task and network."""

MEASURES: Mapping[str, tuple[str, str, str]] = {
    "kl_bits": ("kl_bits", "bits", "KL(exact posterior || prediction)"),
    "error_bits": ("mae_per_sequence_bits", "bits", "mean distance of the predictive entropy from the exact one"),
    "accuracy": ("accuracy_where_certain", "fraction", "share of cues answered with the stored value"),
}
"""By suffix of a number's name the figure of a card, its unit and meaning; only recall has the accuracy."""


@dataclass(frozen=True)
class Primitives(CheckedStudy):
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

    def measure(self, work: Path, progress: Report) -> Findings:
        from ...plans.train_tunnel import train_tunnels
        from .plans import is_tuned, plan_of

        plans = {
            (task, name, seed): plan_of(task, name, seed, self.size, self.n_steps)
            for task in self.tasks
            for name in self.networks
            for seed in self.seeds
        }
        trainings = train_tunnels(plans.values(), work, progress)
        found: dict[tuple[str, str], list[TunnelCard]] = {}
        for (task, name, _), training in zip(plans, trainings, strict=True):
            found.setdefault((task, name), []).append(training.card)
        notes = [
            "Networks of a task are matched in parameters, steps and sequences; intervals are over seeds of the "
            "training, and say nothing of other sizes, budgets or rates."
        ]
        untuned = [f"{name} on {task}" for task, name in found if not is_tuned(task, name, self.size)]
        if untuned:
            notes.append(f"Nobody has chosen the rates of these: {', '.join(untuned)}. A failure may be theirs.")
        if self.n_steps is not None:
            notes.append(f"Trainings have {self.n_steps} steps; rates were chosen for the recipe's own number.")
        return Findings(
            self.name, card_scalars(found), {"runs": _runs(found), "models": models_table(trainings)},
            notes=tuple(notes), headline=tuple(_key(task, name, "kl_bits") for task, name in found),
        )  # fmt: skip

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
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
            "A point is one training with a seed of its own; networks of a task have equally many parameters and saw "
            "the same sequences. At the dashed line nothing of the sequence is used."
        )
        return (Figure("by_network", "How far each network is from the posterior", reading, plot, "runs"),)


def card_scalars(found: Cards) -> dict[str, Scalar]:
    """Means of the figures over seeds, differences from the reference network, and dissociations between tasks."""
    from ...evaluation.evaluation import BEYOND_WINDOW, WINDOW_NULL
    from .plans import REFERENCE

    scalars: dict[str, Scalar] = {}
    beyond: dict[str, Scalar] = {}
    for (task, name), cards in found.items():
        for ending, (figure, unit, words) in MEASURES.items():
            if ending == "accuracy" and task != "recall":
                continue
            key, values = _key(task, name, ending), _values(cards, figure)
            scalars[key] = mean_scalar(values, unit, _null(cards[0], figure), f"{words}: {name} on {task}")
            if ending != "error_bits" and name != REFERENCE and (task, REFERENCE) in found:
                meaning = f"{words}, {name} less {REFERENCE}, on {task}"
                theirs = _values(found[task, REFERENCE], figure)
                beyond[f"{key}_beyond_{_word(REFERENCE)}"] = difference_scalar(values, theirs, unit, meaning)
        if all(BEYOND_WINDOW in card.figures for card in cards):  # of hmm, but for cards of before this figure
            meaning = f"KL less that of the best reader of the last observations alone: {name} on {task}"
            values = _values(cards, BEYOND_WINDOW)
            beyond[_key(task, name, BEYOND_WINDOW)] = mean_over_seeds(values, "bits", WINDOW_NULL, meaning)
    tasks = [*dict.fromkeys(task for task, _ in found)]
    if len(tasks) > 1:
        lacking = {of: np.divide(_values(c, "kl_bits"), _null(c[0], "kl_bits").value) for of, c in found.items()}
        beyond |= {f"{task}_dissociated": dissociation(lacking, task) for task in tasks}
    return scalars | beyond


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


def _values(cards: Sequence[TunnelCard], figure: str) -> list[float]:
    return [card.figures[figure].value for card in cards]


def _null(card: TunnelCard, figure: str) -> Null:
    """The uniform answer, or a random one of the stored values."""
    if figure == "accuracy_where_certain":
        name, value = "one of the stored values at random", 1 / int(card.parameters["n_pairs"])
    else:
        name, value = "uniform over the answers", card.baselines["uniform"][figure]
    return Null(name, value, (value, value))


def _key(task: str, name: str, ending: str) -> str:
    return f"{task}_{_word(name)}_{ending}"


def _word(name: str) -> str:
    return name.replace("-", "_")


def _runs(found: Cards) -> Table:
    rows = [
        {
            "task": task, "network": name, "seed": card.seed, "parameters": card.n_parameters,
            "steps": card.step, "kl_bits": card.figures["kl_bits"].value,
            "kl_low": card.figures["kl_bits"].low, "kl_high": card.figures["kl_bits"].high,
            "error_bits": card.figures["mae_per_sequence_bits"].value,
            **{f"{blind}_kl_bits": card.baselines[blind]["kl_bits"] for blind in ("uniform", "constant", "position")},
            "core_seconds": card.core_seconds, "folder": card.name,
        }
        for (task, name), cards in found.items()
        for card in cards
    ]  # fmt: skip
    units = {"task": LABEL, "network": LABEL, "seed": LABEL, "parameters": "parameters", "steps": "steps",
             "core_seconds": "s", "folder": LABEL}  # fmt: skip
    units |= {name: "bits" for name in rows[0] if name not in units}
    return Table.from_rows(rows, units, "Every training; intervals are over sequences.")
