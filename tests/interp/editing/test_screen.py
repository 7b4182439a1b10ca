"""The screen: its slope and curvature are the derivatives of what the ablation does, whatever the batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from interp.probes.measures.harm import needs_where, read_scores

from interp.editing.conditions import Run, read_conditions
from interp.editing.screen import read_screen
from interp.edits import AblateHeads
from interp.errors import ModelError
from interp.hooks.layer_gradients import in_float64
from interp.probe import Condition, Screen
from interp.prompt import Prompt, PromptSet
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_model

SLOPE_STEP, CURVATURE_STEP = 1e-3, 0.03
"""Divergences are kept in float32, so that their second difference wants a longer step."""

N, LENGTH, OUTCOMES = 5, 9, np.array([3, 40, 7, 99])
EVERYBODY = np.arange(N)


def sequences():
    """Sequences of two scored positions with a simulated posterior."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, VOCAB, LENGTH - i % 2) for i in range(N)]
    prompts = [Prompt(token_ids=tuple(x.tolist()), scored=(3, len(x) - 1)) for x in ids]
    posterior = rng.dirichlet(np.ones(len(OUTCOMES)), 2 * N)
    return Run(PromptSet("tokens", prompts, posterior=posterior, outcome_ids=OUTCOMES), ids)


def texts():
    run = sequences()
    return Run(PromptSet("texts", [Prompt(text=str(i)) for i in range(N)]), run.ids)


def screened(model, run, by, measure, n_draws=1, layers=None, **how):
    heads = tuple(range(model.info.n_heads))
    layers = range(model.info.n_layers) if layers is None else layers
    edits = tuple(AblateHeads(layer=layer, heads=heads, by=by, seed=3) for layer in layers)
    return read_screen(model, run, Screen({"one": edits}, measure, n_draws, EVERYBODY, 0), **how)["one"]


def ablated(model, run, by, measure, dose):
    """What the ablation of each head changes, at a small dose, `[prompt, layer, head]`; and the measure without."""
    n_layers, n_heads = model.info.n_layers, model.info.n_heads
    edits = {
        f"{layer}.{head}": (AblateHeads(layer=layer, heads=(head,), by=by, seed=3, dose=dose),)
        for layer in range(n_layers) for head in range(n_heads)
    }  # fmt: skip
    needs = needs_where(run.prompts.posterior is not None)
    made = [Condition(name, edit, needs, read_scores) for name, edit in edits.items()]
    read = read_conditions(model, run, [Condition("plain", (), needs, read_scores), *made])
    change = np.stack([read[name][measure] for name in edits], axis=1) - read["plain"][measure][:, None]
    return change.reshape(N, n_layers, n_heads)


def differences(model, run, by, measure):
    up, down = (ablated(model, run, by, measure, dose) for dose in (SLOPE_STEP, -SLOPE_STEP))
    more, less = (ablated(model, run, by, measure, dose) for dose in (CURVATURE_STEP, -CURVATURE_STEP))
    return (up - down) / (2 * SLOPE_STEP), (more + less) / CURVATURE_STEP**2


@pytest.mark.parametrize("family", quick(["llama"], FAMILIES))
@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_the_slope_is_the_derivative_of_the_harm_by_the_dose_of_the_ablation(family, by):
    model = in_float64(tiny_model(family))
    for run, measure in ((sequences(), "posterior_kl"), (texts(), "loss")):
        slope = screened(model, run, by, measure)["slope"]
        expected = differences(model, run, by, measure)[0]
        np.testing.assert_allclose(slope, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("by", ["zero", "resample"])
def test_the_curvature_is_the_second_derivative_of_the_divergence_which_has_no_slope(by):
    model, run = in_float64(tiny_model("llama")), texts()
    found = screened(model, run, by, "next_kl", n_draws=2000)
    slope, expected = differences(model, run, by, "next_kl")
    assert not found["slope"].any() and np.abs(slope).max() < 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(found["curvature"], expected, rtol=0.15, atol=0.01 * expected.max())
    assert found["curvature"].sum() == pytest.approx(expected.sum(), rel=0.05)


@pytest.mark.slow
def test_the_curvature_has_no_bias_where_a_prompt_has_several_rows():
    model, run = in_float64(tiny_model("llama")), sequences()
    expected = differences(model, run, "zero", "next_kl")[1]
    found = screened(model, run, "zero", "next_kl", n_draws=2000)["curvature"]
    assert found.sum() == pytest.approx(expected.sum(), rel=0.05)
    edits = tuple(AblateHeads(layer=layer, heads=(0, 1, 2, 3)) for layer in range(3))
    screens = (Screen({"one": edits}, "next_kl", 4, EVERYBODY, seed) for seed in range(60))
    few = [read_screen(model, run, screen)["one"]["curvature"].sum() for screen in screens]
    assert abs(np.mean(few) - expected.sum()) < 4 * np.std(few) / 60**0.5


@pytest.mark.parametrize("measure", ["posterior_kl", "next_kl"])
def test_what_a_screen_says_does_not_depend_on_the_batch(measure):
    model, run = tiny_model("gpt_neox"), sequences()
    whole, alone = (screened(model, run, "resample", measure, 3, graph_bytes=b) for b in (1 << 30, 1))
    for name in ("slope", "curvature"):
        np.testing.assert_allclose(whole[name], alone[name], rtol=1e-3, atol=1e-6)


def test_a_head_that_nobody_reads_is_estimated_to_do_nothing_and_layers_that_are_not_named_are_zero():
    model, run = fresh_model("llama"), texts()
    model.module.model.layers[1].self_attn.o_proj.weight.data[:, : model.info.d_head] = 0
    found = screened(model, run, "zero", "next_kl", 4, layers=(1, 2))["curvature"]
    assert (found[:, 1, 0] == 0).all() and (found[:, 1, 1:] > 0).all()
    assert not found[:, 0].any() and found[:, 2].any()


def test_the_model_is_left_as_it_was_and_an_offloaded_one_refused():
    model, run = tiny_model("phi"), texts()
    ids = torch.from_numpy(run.ids[0])[None]
    before = model.module(input_ids=ids).logits
    screened(model, run, "mean", "loss")
    after = model.module(input_ids=ids).logits
    assert torch.equal(before, after) and all(p.grad is None for p in model.module.parameters())
    model = tiny_model("llama")
    offloaded = replace(model, info=replace(model.info, device="cpu, offloaded to disk"))
    with pytest.raises(ModelError, match=r"needs all weights at once\n.*heads\.screen=off"):
        screened(offloaded, texts(), "zero", "next_kl")


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_those_that_they_are_where_the_caller_has_switched_them_off(off):
    model, run = tiny_model("llama"), sequences()
    expected = screened(model, run, "mean", "posterior_kl")
    with off():
        found = screened(model, run, "mean", "posterior_kl")
    np.testing.assert_array_equal(found["slope"], expected["slope"])
    with torch.inference_mode():
        made_there = fresh_model("llama")
    with pytest.raises(ModelError, match=r"made inside torch\.inference_mode"):
        screened(made_there, run, "mean", "posterior_kl")
