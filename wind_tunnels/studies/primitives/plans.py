"""Trainings that compare architectures on accumulation, transport and binding, at equal budgets.

Small ones take task, sizes, steps and the best rates of the seed `TUNED_ON` from `measured/primitives.csv`; a network
that it lacks is matched in parameters to the transformer, with untuned rates. Large ones have the sizes of Paper I
(arXiv 2512.22471) as far as they are known and need days of a GPU.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from interp.errors import UnknownName, named
from interp.registry import load_entry
from interp.tunnel import Task, make_task

from ...networks.architectures import ARCHITECTURES, Network
from ...networks.equal_capacity import matched_to, widest_not_above
from ...networks.networks import count_parameters
from ...training.plan import Recipe, TrainingPlan

TASKS: Mapping[str, str] = {"bijection": "accumulation", "hmm": "transport", "recall": "binding"}
"""The tasks and their primitives (Paper I, version 3)."""

REFERENCE = "gpt-neox"
BARE = "lstm-bare"
"""Nine layers of LSTM without residual connections and norms: the papers' LSTM."""

NETWORKS = (*ARCHITECTURES, BARE)
TUNED_ON = "0"

_PAPERS_LSTM = Network(arch="lstm", n_layers=9, has_residual=False)
_MEASURED = Path(__file__).parents[2] / "measured" / "primitives.csv"
_INTEGERS = ("n_layers", "d_model", "d_mlp")

_PAPERS_TASK: Mapping[str, Mapping[str, Any]] = {
    "bijection": {"V": 20, "L": 19, "replacement": False},
    "hmm": {"S": 5, "O": 5, "K": 20},
    "recall": {"n_pairs": 64, "n_keys": 256, "n_values": 256, "n_queries": 3, "n_fillers": 32},
}
_PAPERS_NETWORK: Mapping[str, Mapping[str, Any]] = {
    "bijection": {"n_layers": 6, "n_heads": 6, "d_model": 192},
    "hmm": {"n_layers": 9, "n_heads": 8, "d_model": 256},
    "recall": {"n_layers": 6, "n_heads": 6, "d_model": 192},
}
_PAPERS_RECIPE: Mapping[str, Any] = {
    "n_steps": 50_000, "batch": 256, "n_copies": 1, "curriculum": "none", "optimiser": "adamw", "lr_adamw": 3e-4,
    "n_warmup": 2000,
}  # fmt: skip


def plan_of(task: str, name: str, seed: int, size: str, n_steps: int | None) -> TrainingPlan:
    """The training of one network (an architecture, or `lstm-bare`) on one task; `n_steps` None is the recipe's own."""
    named("task of the primitives", task, TASKS)
    if name not in NETWORKS:
        raise UnknownName("network of the primitives", name, NETWORKS)
    parameters, network, settings = _papers(task) if size == "papers" else _measured(task, name)
    posed = make_task(load_entry("tunnel", task), parameters)
    if name != network.arch:
        network = _as_large(name, network, posed)
    settings |= {"seed": seed} | ({} if n_steps is None else {"n_steps": n_steps})
    variant = f"{'bare-' if name == BARE else ''}seed{seed}"
    return TrainingPlan(posed, network, Recipe(**settings), variant=variant)


def is_tuned(task: str, name: str, size: str) -> bool:
    """Whether the rates of this network were chosen among several."""
    return size == "small" and (_without_bare(name) in {row["arch"] for row in _rows(task)})


def _measured(task: str, name: str) -> tuple[dict[str, Any], Network, dict[str, Any]]:
    """The parameters of the task, the network (or the one to match), and the recipe."""
    runs = {arch: [row for row in _rows(task) if row["arch"] == arch] for arch in (_without_bare(name), REFERENCE)}
    row = min(runs[_without_bare(name)] or runs[REFERENCE], key=lambda r: float(r["kl_bits"]))
    recipe: dict[str, Any] = {n: int(row[n]) for n in ("n_steps", "batch", "n_copies")}
    recipe |= {n: float(row[n]) for n in ("lr_muon", "lr_adamw") if row[n]}
    recipe |= {"target": row["target"], "optimiser": row["optimiser"], "curriculum": "none"}
    shown = row if name == row["arch"] else runs[REFERENCE][0]
    sizes: dict[str, Any] = {name: int(shown[name]) for name in _INTEGERS if shown[name]}
    return json.loads(row["parameters"]), Network(arch=shown["arch"], **sizes), recipe


def _papers(task: str) -> tuple[dict[str, Any], Network, dict[str, Any]]:
    recipe = {**_PAPERS_RECIPE, "target": "distil" if task == "hmm" else "labels"}
    return dict(_PAPERS_TASK[task]), Network(arch=REFERENCE, **_PAPERS_NETWORK[task]), recipe


def _as_large(name: str, reference: Network, task: Task) -> Network:
    """A network with as many parameters as the reference, within 2 %; nine layers of LSTM as near as possible."""
    if name != BARE:
        return matched_to(Network(arch=name, n_layers=reference.n_layers), reference, task)
    target = count_parameters(reference, task)
    below = widest_not_above(_PAPERS_LSTM, task, target)
    nearest = [replace(_PAPERS_LSTM, d_model=width) for width in (below, below + 1)]
    return min(nearest, key=lambda network: abs(count_parameters(network, task) - target))


def _without_bare(name: str) -> str:
    return "lstm" if name == BARE else name


@cache
def _rows(task: str) -> tuple[dict[str, str], ...]:
    """The measured runs of a task with the seed `TUNED_ON`; of bijection, those without replacement."""
    with _MEASURED.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == task and row["seed"] == TUNED_ON]
    return tuple(row for row in rows if not json.loads(row["parameters"]).get("replacement"))
