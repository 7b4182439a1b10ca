"""What it costs to come close: when a training ends, what is timed, and the papers' optimiser as they have it."""

import numpy as np
import pytest
import torch
from interp.wind_tunnels.evaluation.evaluation import evaluate
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.networks import predict
from interp.wind_tunnels.studies.training_speed import OURS, PAPERS, Race, TrainingSpeed, held_out_kl
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import train
from interp.wind_tunnels.training.plan import TrainingPlan

from interp.errors import UsageError

TASK = Bijection(V=3, L=3, replacement=False)
SMALL = Network(n_layers=1, n_heads=2, d_model=16)


def nothing(done: int, n: int) -> None:
    """No progress is shown."""


def race(name: str, **fields) -> Race:
    study = TrainingSpeed(V=3, L=3, networks=("gpt-neox",), **fields)
    return Race.of(TASK, SMALL, name, study.recipe(name, 0))


def test_our_arm_is_an_ordinary_training():
    """Taken a turn at a time it ends with the weights that the loop gives."""
    mine, held_out = race(OURS, n_steps=40), TASK.sample(np.random.default_rng(0), 50)
    while not mine.is_over(0.0, np.inf):
        mine.take_a_turn(held_out, 0.0)
    whole = train(TrainingPlan(TASK, SMALL, mine.recipe))
    assert mine.state.step == 40
    for a, b in zip(mine.state.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_both_arms_see_the_same_batches_from_the_same_start():
    arms = [race(name) for name in (OURS, PAPERS)]
    a, b = (arm.sampler.batch(arm.state.rng, 0).tokens for arm in arms)
    assert np.array_equal(a, b)
    for p, q in zip(*(arm.state.model.parameters() for arm in arms), strict=True):
        assert torch.equal(p, q)


def test_the_papers_arm_is_torchs_adamw_with_the_papers_numbers_at_a_constant_rate():
    arm = race(PAPERS)
    (optimiser,) = arm.state.optimisers
    (group,) = optimiser.param_groups
    assert type(optimiser) is torch.optim.AdamW
    assert (group["lr"], group["betas"], group["weight_decay"], arm.recipe.clip) == (1e-3, (0.9, 0.999), 0.01, 1.0)
    assert {id(p) for p in group["params"]} == {id(p) for p in arm.state.model.parameters()}
    assert all(0.98 <= arm.recipe.rate(step) <= 1 for step in range(2000))


def test_the_kl_is_that_of_an_evaluation():
    model, sequences = race(OURS).state.model, TASK.sample(np.random.default_rng(1), 80)
    model.eval()
    log_probs = predict(model, sequences.tokens, sequences.scored)
    theirs = evaluate(log_probs, sequences, np.random.default_rng(0)).figures["kl_bits"].value
    assert held_out_kl(model, sequences) == pytest.approx(theirs)
    assert model.training  # the training goes on


def test_a_training_ends_at_its_aim_or_when_its_steps_or_its_time_are_spent():
    ours, papers = race(OURS, n_steps=5), race(PAPERS)
    ours.state.step, ours.state.core_seconds = 4, 1e9
    papers.state.step, papers.state.core_seconds = 99, 3.0
    assert not ours.is_over(0.1, 2.0)  # it has an end of its own
    assert papers.is_over(0.1, 2.0) and not papers.is_over(0.1, 4.0)
    ours.state.step = 5
    assert ours.is_over(0.1, 2.0)
    papers.kl_bits = 0.1
    assert papers.is_over(0.1, 4.0)
    study = TrainingSpeed(kl_bits=0.1)
    assert study._table([papers])["is_reached"].tolist() == [True] and study._scalar([papers]).value == 3.0


@pytest.mark.slow
def test_the_table_says_where_every_training_ended(tmp_path):
    study = TrainingSpeed(networks=("gpt-neox", "llama"), V=3, L=3, kl_bits=1.0, n_steps=50, budget_seconds=30.0,
                          seeds=(1, 2))  # fmt: skip
    found = study.measure(tmp_path, nothing)
    table = found.tables["trainings"]
    assert list(zip(table["network"], table["recipe"], table["seed"], strict=True)) == [
        (network, recipe, seed) for network in study.networks for recipe in (OURS, PAPERS) for seed in study.seeds
    ]
    assert np.array_equal(table["is_reached"], table["kl_bits"] <= 1.0) and table["is_reached"].any()
    for row in range(0, table.n_rows, 2):
        mean = found[f"{table['recipe'][row]}_{table['network'][row].replace('-', '_')}_seconds"]
        both = slice(row, row + 2)
        if table["is_reached"][both].all():
            assert mean.value == pytest.approx(table["core_seconds"][both].mean()) and mean.n == 2
        else:
            assert np.isnan(mean.value)


@pytest.mark.slow
def test_what_is_not_reached_says_how_far_it_came(tmp_path):
    study = TrainingSpeed(networks=("gpt-neox",), V=3, L=3, kl_bits=1e-9, n_steps=3, budget_seconds=1e-3)
    found = study.measure(tmp_path, nothing)
    assert set(found.tables["trainings"]["seed"]) == {1, 2, 3}
    assert not found.tables["trainings"]["is_reached"].any()
    assert all("not reached in" in scalar.interval_reason for scalar in found.scalars.values())


@pytest.mark.parametrize("study, words", [
    (TrainingSpeed(networks=("llama", "llama")), "one is there twice"), (TrainingSpeed(kl_bits=0.0), "kl_bits"),
    (TrainingSpeed(seeds=(1, 1)), "one is there twice"),
    (TrainingSpeed(budget_seconds=-1.0), "budget_seconds"),
])  # fmt: skip
def test_a_study_that_makes_no_sense_is_refused(tmp_path, study, words):
    with pytest.raises(UsageError, match=words):
        study.measure(tmp_path, nothing)
