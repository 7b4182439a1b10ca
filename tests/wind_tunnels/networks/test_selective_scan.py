"""Mamba's scan: transformers' own is the definition, for outputs, gradients, single steps and saved weights."""

import copy
from inspect import signature

import torch
from interp.wind_tunnels.networks.networks import Network, build
from interp.wind_tunnels.networks.selective_scan import ScanMixer, SelectiveScan
from interp.wind_tunnels.networks.weights import load_weights
from interp.wind_tunnels.tasks.bijection import Bijection
from transformers import AutoModelForCausalLM
from transformers.models.mamba.modeling_mamba import MambaMixer

TASK = Bijection(V=6, L=8)


def network():
    return build(Network(arch="mamba", n_layers=2, d_model=16), TASK, torch.Generator().manual_seed(3))


def plainly(model):
    """The same network with transformers' own mixer."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if isinstance(module, ScanMixer):
            module.__class__ = MambaMixer
    return plain


def tokens(n=5):
    return torch.randint(TASK.vocab_size, (n, TASK.n_positions), generator=torch.Generator().manual_seed(0))


def test_a_new_network_scans_quickly_and_both_of_its_layers_do():
    assert sum(type(module) is ScanMixer for module in network().modules()) == 2


def test_logits_and_every_gradient_are_those_of_the_plain_scan():
    """In float32: parts of the plain scan round to it whatever the weights are."""
    ours = network().train()
    plain = plainly(ours)
    ids, found = tokens(), []
    for model in (ours, plain):
        logits = model(input_ids=ids, use_cache=False).logits
        logits.logsumexp(dim=-1).mul(torch.arange(TASK.n_positions)).sum().backward()
        found.append((logits, [p.grad for p in model.parameters()]))
    (logits, grads), (plain_logits, plain_grads) = found
    torch.testing.assert_close(logits, plain_logits, rtol=1e-5, atol=1e-5)
    for (name, _), ours_is, plain_is in zip(ours.named_parameters(), grads, plain_grads, strict=True):
        scale = plain_is.abs().max().item()
        assert scale > 0, name
        torch.testing.assert_close(ours_is, plain_is, rtol=0.0, atol=1e-4 * scale, msg=name)


def test_its_gradient_is_that_of_finite_differences():
    torch.manual_seed(0)
    n, n_sequences, n_channels, n_states = 4, 2, 3, 2
    x = torch.randn(n, n_sequences, n_channels, dtype=torch.float64)
    delta = torch.rand_like(x) + 0.1
    rates = -torch.rand(n_states, n_channels, dtype=torch.float64)
    write, read = torch.randn(2, n, n_sequences, n_states, dtype=torch.float64)
    given = [a.clone().requires_grad_() for a in (x, delta, rates, write, read)]
    assert torch.autograd.gradcheck(SelectiveScan.apply, given)


def test_one_token_at_a_time_with_a_cache_it_says_what_it_says_of_the_whole():
    model, ids = network(), tokens(2)
    name = "cache" if "cache" in signature(model.forward).parameters else "cache_params"
    with torch.no_grad():
        whole, cache, steps = model(input_ids=ids, use_cache=False).logits, None, []
        for t in range(TASK.n_positions):
            out = model(input_ids=ids[:, t : t + 1], use_cache=True, **{name: cache})
            cache = out[name]
            steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_a_saved_network_is_an_ordinary_mamba(tmp_path):
    model, ids = network(), tokens()
    model.save_pretrained(tmp_path)
    opened, ours = AutoModelForCausalLM.from_pretrained(tmp_path), load_weights(tmp_path)
    assert {type(m) for m in opened.modules() if isinstance(m, MambaMixer)} == {MambaMixer}
    assert {type(m) for m in ours.modules() if isinstance(m, MambaMixer)} == {ScanMixer}
    assert '"MambaForCausalLM"' in (tmp_path / "config.json").read_text(encoding="utf-8")
    with torch.no_grad():
        torch.testing.assert_close(opened(input_ids=ids).logits, ours(input_ids=ids, use_cache=False).logits)
