"""Attention switched off by layer: nothing passes there, training keeps it so, and the checkpoint is a plain one."""

from operator import attrgetter

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.networks import build, switch_off_attention
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import train
from interp.wind_tunnels.training.plan import Recipe, TrainingPlan
from transformers import AutoModelForCausalLM

from interp.families import family_of
from interp.loading.load import load
from interp.need import Need
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.reading.forward import capture
from interp.self_check.selfcheck import run_checks

TASK = Bijection(V=5, L=6)
TRANSFORMERS = ("gpt-neox", "phi", "llama", "mistral")


def fresh(network: Network):
    return build(network, TASK, torch.Generator().manual_seed(0))


def projections(model) -> list[torch.nn.Module]:
    family = family_of(model.config)
    return [attrgetter(family.out)(attention) for attention in family.attention_modules(model)]


def is_zero(module: torch.nn.Module) -> bool:
    return not any(p.any() for p in module.parameters())


@pytest.mark.parametrize("arch", TRANSFORMERS)
def test_only_the_named_layers_keep_attention(arch):
    model = fresh(Network(arch=arch, attention_layers=(1,)))
    assert [is_zero(p) for p in projections(model)] == [True, False, True]
    assert [p.weight.requires_grad for p in projections(model)] == [False, True, False]
    model = fresh(Network(arch=arch, attention_layers=()))
    before = torch.from_numpy(TASK.sample(np.random.default_rng(0), 3).tokens)
    after = before.clone()
    after[:, 2] = (after[:, 2] + 1) % TASK.vocab_size
    with torch.no_grad():
        change = (model(input_ids=before).logits - model(input_ids=after).logits).abs().amax(dim=(0, 2)).numpy()
    assert change[2] > 1e-2
    assert np.delete(change, 2).max() < 1e-6


def test_other_weights_are_those_of_the_seed_or_switched_off_by_hand():
    whole, partial = (fresh(n).state_dict() for n in (Network(), Network(attention_layers=(0, 2))))
    differing = [name for name in whole if not torch.equal(whole[name], partial[name])]
    assert differing == ["gpt_neox.layers.1.attention.dense.weight"]  # its bias starts at zero everywhere
    network = Network(attention_layers=(0,))
    model = fresh(Network())
    switch_off_attention(model, network)
    assert [is_zero(p) for p in projections(model)] == [False, True, True]


@pytest.mark.parametrize("arch", TRANSFORMERS)
@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_trained_zeros_stay_exact_zeros(arch, optimiser, tmp_path):
    network = Network(arch=arch, d_model=16, n_heads=2, attention_layers=(0, 2))
    recipe = Recipe(n_steps=4, batch=8, optimiser=optimiser, n_warmup=1)
    model = train(TrainingPlan(TASK, network, recipe)).model
    start = fresh(network)
    assert [is_zero(p) for p in projections(model)] == [False, True, False]
    assert not torch.equal(projections(model)[0].weight, projections(start)[0].weight)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert [is_zero(p) for p in projections(again)] == [False, True, False]
    assert "attention_layers" not in again.config.to_dict()


@pytest.mark.parametrize("arch", TRANSFORMERS)
def test_the_self_check_holds_and_attention_adds_nothing_where_it_is_off(arch):
    model = load(fresh(Network(arch=arch, attention_layers=(0,))))
    assert all(c.passed for c in model.checks) and len(model.checks) == 14
    prompts = sampled_prompts(TASK, 4, 0)
    ids = [np.array(p.token_ids) for p in prompts]
    got = capture(model, prompts, ids, [Need("attn_out"), Need("pattern_entropy")])
    assert got[Need("attn_out")][0].any() and not got[Need("attn_out")][1:].any()
    assert np.isfinite(got[Need("pattern_entropy")]).all()


def test_the_self_check_notices_values_that_act_although_the_projection_is_zero():
    """A projection that is zero when it is looked at and not when it is used."""
    module = fresh(Network(attention_layers=(0, 1)))
    projection = projections(module)[2]
    noise = torch.randn(64, 64)
    projection.register_forward_hook(lambda m, args, out: out + args[0] @ noise)
    results = {c.name: c.passed for c in run_checks(load(module, check=False))}
    assert not results["edit"]
