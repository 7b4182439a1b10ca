"""Interchange accuracy on compiled programs: stated directions, found ones, inert ones, and no program at all."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.belief.probe import Belief
from interp.probes.causal.probe import Causal
from interp.probes.measures.target import Target
from interp.probes.programs.swaps import Directions, Swaps, is_swap, mean_estimates, swapped

import interp
from interp.editing.conditions import Run, read_conditions
from tests.quick import quick

BELIEF = Belief(sites=("resid",), n_permutations=19, n_bootstrap=50)
CAUSAL = Causal(site="resid", n_controls=19, n_bootstrap=20, n_prompts=30)


def run(program, probe, n=60):
    model = interp.load(program, check=False)
    return interp.run(model, probes=[probe], n_pool=n, out=None, quiet=True).findings[probe.name]


@pytest.mark.parametrize(
    "program, target",
    quick(
        [("chain", "first_step_3")],
        [
            ("frac_prevs", "frac_prevs_1"),
            ("chain", "first_step_3"),
            ("elimination", "kept_a_5"),
            ("evidence", "answer"),
        ],
    ),
)
def test_what_belief_finds_of_a_variable_moves_the_answer_as_the_program_says(program, target):
    found = run(f"program:{program}", replace(BELIEF, target=target))
    assert found["r2"].value > 0.95
    accuracy, stated = found["interchange_accuracy"], found["interchange_accuracy_stated"]
    assert accuracy.value == stated.value == 1.0
    assert accuracy.null is not None and accuracy.null.band[1] < 0.9 and accuracy.p == pytest.approx(1 / 200)
    table = found.tables["program_swaps"]
    others = table.where(np.char.startswith(table["directions"].astype(str), "of "))
    np.testing.assert_array_equal(others["accuracy"], 1.0)
    inert = others["should_move"] == 0
    np.testing.assert_array_equal(others["kept"][inert], 1.0)
    if "inert_kept" in found.scalars:
        assert found["inert_kept"].value == 1.0


@pytest.mark.slow
def test_the_axis_of_the_causal_probe_is_held_against_the_program_at_the_depth_that_is_read():
    found = run("program:frac_prevs", replace(CAUSAL, target="map_3"))
    assert found["interchange_accuracy"].value == found["interchange_accuracy_stated"].value == 1.0
    assert found.tables["program_swaps"]["depth"].tolist()[0] == 1, "behind it nothing reads map_3"
    values = run("program:chain", replace(CAUSAL, site="v", target="first_step_3"))
    assert "residual stream" in values["interchange_accuracy"].interval_reason


@pytest.mark.slow
def test_one_direction_of_a_variable_held_in_several_is_not_the_variable():
    """first_step_3 is one direction a value: a line through them tells it exactly and carries little of it."""
    found = run("program:chain", replace(CAUSAL, target="first_step_3"))
    assert found["axis_r2"].value > 0.99
    assert found["interchange_accuracy"].value < 0.8 and found["interchange_accuracy_stated"].value == 1.0


@pytest.mark.slow
def test_what_is_written_and_read_inside_a_block_cannot_be_swapped_between_blocks():
    found = run("program:elimination", replace(BELIEF, target="share_c_7"))
    assert "inside one block" in found["interchange_accuracy"].interval_reason
    position = run("program:elimination", replace(BELIEF, target="evidence"))
    assert "no variable" in position["interchange_accuracy"].interval_reason


def test_other_models_have_no_such_number():
    """Number and note of a trained tunnel, of which nobody knows what a swap of its evidence should do."""
    found = run("tunnel:bijection-gpt-neox", replace(BELIEF, target="evidence"))
    assert "interchange_accuracy" not in found.scalars and "program_swaps" not in found.tables
    assert any("not known here" in note for note in found.notes)


def test_accuracy_counts_answers_one_by_one():
    """By hand: the exact answers of every prompt, donor by donor, beside what a swap of half a variable gives."""
    model = interp.load("program:evidence", check=False)
    prompts = interp.sampled_prompts(model.task, n=20)
    base = interp.collect(model, prompts, ["resid"])
    swaps = Swaps.of(base, Target("heads_2"), np.arange(20), seed=0)
    assert swaps is not None and swaps.depths(3) == (1,)
    assert sorted(swaps.sources) == list(range(20)) and (swaps.sources != swaps.prompts).all()
    half = {1: {"half": Directions(swaps.mechanism.directions["heads_2"][:4])}}
    source = Run(prompts, [np.array(prompt.token_ids) for prompt in prompts])
    under = read_conditions(model, source, list(swaps.conditions(base, half, seed=0)))
    assert all(map(is_swap, under))
    by_unit = {swap.directions: swap.by_unit for swap in swapped(base, under, swaps)}
    answers = under["program|1|half|4"]["answer"].reshape(20, -1)
    card, scored = model.card, prompts.prompts[0].scored
    right = np.zeros(answers.shape, bool)
    for i, donor in enumerate(swaps.sources):
        words = [[card["tokens"][t] for t in prompts.prompts[p].token_ids[1:]] for p in (i, donor)]
        for j, position in enumerate(scored):
            heads = words[1][:position].count("h")
            tails = words[0][:position].count("t")
            right[i, j] = model.task.answers[answers[i, j]] == heads - tails
    np.testing.assert_allclose(by_unit["half"], right.mean(axis=1))
    assert by_unit["stated"].mean() == 1.0 and 0 < by_unit["half"].mean() < 1


def test_a_plan_counts_no_fewer_swaps_than_there_are():
    model = interp.load("program:elimination", check=False)
    base = interp.collect(model, interp.sampled_prompts(model.task, n=20), ["resid"])
    swaps = Swaps.of(base, Target("left_1"), np.arange(20), seed=0)
    assert swaps is not None
    found = {5: {"one": Directions(swaps.mechanism.directions["left_1"][:1])}}
    planned = list(replace(BELIEF, target="left_1").planned(model.info, 100, is_text=False))
    assert len(list(swaps.conditions(base, found, seed=0))) <= planned[0].n and len(planned) == model.info.n_layers + 1
    assert list(replace(BELIEF, target="x").planned(replace(model.info, family="llama"), 100, is_text=True)) == []


@pytest.mark.parametrize("size", [1, 4])
def test_a_mean_over_copies_is_as_uncertain_as_one_over_what_was_copied(size):
    values = np.random.default_rng(1).standard_normal(60)
    found = mean_estimates(np.repeat(values, size)[None], np.repeat(np.arange(60), size), 4000, "sequence")
    assert found.interval is not None
    low, high = found.interval[:, 0]
    assert (low + high) / 2 == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(2.001 * values.std(ddof=1) / 60**0.5, rel=0.05)
