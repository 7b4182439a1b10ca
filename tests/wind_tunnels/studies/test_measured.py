"""The measured primitives: equal capacity, equal budgets, a tuning that saw one seed."""

import csv
import json
from pathlib import Path
from typing import Any

import interp.wind_tunnels as wind_tunnels
import numpy as np
import pytest
from interp.wind_tunnels.evaluation.evaluation import evaluate
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.equal_capacity import TOLERANCE
from interp.wind_tunnels.networks.networks import count_parameters, predict
from interp.wind_tunnels.studies.primitives.plans import TASKS, is_tuned, plan_of
from interp.wind_tunnels.training.loop import train
from interp.wind_tunnels.training.plan import Recipe, TrainingPlan
from interp.wind_tunnels.training.sampling import evaluation_generators

from interp.registry import load_entry
from interp.tunnel import make_task

HERE = Path(wind_tunnels.__file__).parent
BUDGET = ("task", "parameters", "target", "n_steps", "batch", "n_copies")


def read(name):
    with (HERE / "measured" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


RUNS = read("primitives.csv")


def task_of(run):
    return make_task(load_entry("tunnel", run["task"]), json.loads(run["parameters"]))


def network_of(run):
    sizes: dict[str, Any] = {name: int(run[name]) for name in ("n_layers", "d_model", "d_mlp") if run[name]}
    return Network(arch=run["arch"], **sizes)


def recipe_of(run):
    settings: dict[str, Any] = {name: int(run[name]) for name in ("n_steps", "batch", "n_copies", "seed")}
    settings |= {name: float(run[name]) for name in ("lr_muon", "lr_adamw") if run[name]}
    return Recipe(**settings, target=run["target"], optimiser=run["optimiser"], curriculum="none")


def tasks():
    return sorted({run["task"] for run in RUNS})


@pytest.mark.parametrize("task", tasks())
def test_networks_of_a_task_have_equal_capacity_and_equal_budgets(task):
    runs = [run for run in RUNS if run["task"] == task and run["parameters"]]
    for parameters in {run["parameters"] for run in runs}:
        alike = [run for run in runs if run["parameters"] == parameters]
        reference = next(int(run["n_parameters"]) for run in alike if run["arch"] == "gpt-neox")
        for run in alike:
            assert count_parameters(network_of(run), task_of(run)) == int(run["n_parameters"])
            assert abs(int(run["n_parameters"]) / reference - 1) <= TOLERANCE
        assert len({tuple(run[name] for name in BUDGET) for run in alike}) == 1


@pytest.mark.parametrize("task", list(TASKS))
def test_small_plans_have_the_rates_of_the_run_that_came_closest_on_seed_0(task):
    runs = [run for run in RUNS if run["task"] == task and run["seed"] == "0"]
    runs = [run for run in runs if not json.loads(run["parameters"]).get("replacement")]
    names = ("gpt-neox", "mamba", "lstm", "mlp-context", "mlp-position")
    plans = {name: plan_of(task, name, 1, "small", None) for name in names}
    for name, plan in plans.items():
        best = min((run for run in runs if run["arch"] == name), key=lambda run: float(run["kl_bits"]))
        assert count_parameters(plan.network, plan.task) == int(best["n_parameters"]) and plan.task == task_of(best)
        assert plan.recipe.lr_adamw == float(best["lr_adamw"]) and plan.recipe.target == best["target"]
        assert is_tuned(task, name, "small") and not is_tuned(task, name, "papers")
    assert len({(p.recipe.n_steps, p.recipe.batch, p.recipe.n_copies) for p in plans.values()}) == 1


def test_every_interval_holds_its_figure_and_every_run_has_its_curve():
    curves = read("primitives_curves.csv")
    for run in RUNS:
        assert float(run["kl_low"]) <= float(run["kl_bits"]) <= float(run["kl_high"])
        steps = [int(point["step"]) for point in curves if point["run"] == run["run"]]
        assert steps == sorted(steps) and steps[-1] == int(run["n_steps"])


@pytest.mark.slow
def test_a_run_can_be_done_again():
    """The quickest of them; another processor may round otherwise, hence the factor of two of the cards."""
    run = min((run for run in RUNS if run["arch"] == "lstm"), key=lambda run: float(run["core_seconds"]))
    task = task_of(run)
    progress = train(TrainingPlan(task, network_of(run), recipe_of(run)))
    draws, resamples = evaluation_generators(20_000)
    sequences = task.sample(draws, int(run["n_eval"]))
    log_probs = predict(progress.model, sequences.tokens, sequences.scored)
    kl = evaluate(log_probs, sequences, resamples).figures["kl_bits"].value
    assert np.log2(kl / float(run["kl_bits"])) == pytest.approx(0.0, abs=1.0)
