"""LSTM, feed-forward and state-space networks: what they compute, and what each can see."""

import copy
from inspect import signature

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.networks import Network, build
from interp.wind_tunnels.networks.selective_scan import ScanMixer
from interp.wind_tunnels.networks.weights import load_weights
from interp.wind_tunnels.tasks.bijection import Bijection
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from transformers.models.mamba.modeling_mamba import MambaMixer

TASK = Bijection(V=6, L=8)


def fresh(seed: int = 0, **sizes):
    return build(Network(**sizes), TASK, torch.Generator().manual_seed(seed))


def tokens(n: int = 3) -> torch.Tensor:
    return torch.from_numpy(TASK.sample(np.random.default_rng(0), n).tokens)


def head(model, x: torch.Tensor) -> torch.Tensor:
    norm = model.final_norm
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps) @ model.lm_head.weight.T


def test_a_plain_lstm_is_torchs_stacked_lstm():
    model = fresh(arch="lstm", d_model=12, has_residual=False)
    stacked = nn.LSTM(12, 12, num_layers=3, batch_first=True)
    for layer, block in enumerate(model.layers):
        for name, value in block.lstm.state_dict().items():
            stacked.state_dict()[name.replace("l0", f"l{layer}")].copy_(value)
    with torch.no_grad():
        expected = head(model, stacked(model.embed_tokens(tokens()))[0])
        torch.testing.assert_close(model(input_ids=tokens()).logits, expected, rtol=1e-5, atol=1e-6)


def test_a_residual_layer_adds_what_its_lstm_makes_of_the_normed_stream():
    model = fresh(arch="lstm", n_layers=1, d_model=6).double()
    block, ids = model.layers[0], tokens(1)
    with torch.no_grad():
        x = model.embed_tokens(ids)
        expected = head(model, x + block.lstm(F.layer_norm(x, (6,)))[0])
        torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("arch", "n_context"), [("mlp-position", 1), ("mlp-context", 15)])
def test_a_feed_forward_is_its_matrices_on_the_tokens_side_by_side(arch, n_context):
    model, ids = fresh(arch=arch, n_layers=2, d_model=6).double(), tokens(1)
    assert model.config.n_context == n_context
    ids = torch.cat([ids, ids], dim=1)  # longer than any of its contexts
    with torch.no_grad():
        embedded = model.embed_tokens(ids)[0]
        padded = torch.cat([torch.zeros(n_context - 1, 6).double(), embedded])
        x = torch.stack([model.join.weight @ padded[t : t + n_context].flatten() for t in range(len(embedded))])
        for block in model.layers:
            inner = F.gelu(F.layer_norm(x, (6,)) @ block.mlp.up.weight.T + block.mlp.up.bias)
            x = x + inner @ block.mlp.down.weight.T + block.mlp.down.bias
        torch.testing.assert_close(model(input_ids=ids).logits[0], head(model, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kept", [0, 2, torch.tensor([0, 4, 10])], ids=["all", "last two", "named"])
def test_logits_are_kept_where_they_are_asked_for(kept):
    model = fresh(arch="lstm")
    with torch.no_grad():
        whole = model(input_ids=tokens()).logits
        some = model(input_ids=tokens(), logits_to_keep=kept).logits
    expected = whole[:, kept] if isinstance(kept, torch.Tensor) else whole[:, -kept:]
    torch.testing.assert_close(some, expected, rtol=1e-5, atol=1e-6)


def test_networks_without_attention_start_at_their_spread():
    for block in fresh(arch="lstm", d_model=64).layers:
        lstm = block.lstm
        assert torch.equal(lstm.bias_ih_l0, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(64))
        assert not lstm.bias_hh_l0.any()
        assert lstm.weight_ih_l0.std().item() == pytest.approx(0.1, rel=0.05)
        assert lstm.weight_hh_l0.std().item() == pytest.approx(0.1, rel=0.05)
    model = fresh(arch="mlp-context", d_model=96)
    block = model.layers[1].mlp
    spreads = {model.embed_tokens: 1.0, model.join: 0.1, block.up: 0.1, block.down: 0.025, model.lm_head: 0.1}
    for module, spread in spreads.items():
        assert module.weight.std().item() == pytest.approx(spread, rel=0.08)


def test_a_state_space_keeps_its_rates():
    mixer = fresh(arch="mamba").backbone.layers[0].mixer
    rates = F.softplus(mixer.dt_proj.bias)
    assert rates.min() > 0.9e-3 and rates.max() < 0.11  # S4's range of time steps, 0.001 to 0.1
    torch.testing.assert_close(mixer.A_log.exp(), torch.arange(1.0, 17.0).expand(128, 16))
    assert mixer.out_proj.weight.std().item() == pytest.approx(0.025, rel=0.08)


def plainly(model):
    """The same network with transformers' own mixer."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if isinstance(module, ScanMixer):
            module.__class__ = MambaMixer
    return plain


def test_logits_and_every_gradient_are_those_of_the_plain_scan():
    """In float32: parts of the plain scan round to it whatever the weights are."""
    ours = fresh(3, arch="mamba", n_layers=2, d_model=16).train()
    assert sum(type(module) is ScanMixer for module in ours.modules()) == 2
    plain = plainly(ours)
    ids, found = tokens(5), []
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


def test_one_token_at_a_time_with_a_cache_it_says_what_it_says_of_the_whole():
    model, ids = fresh(3, arch="mamba", n_layers=2, d_model=16), tokens(2)
    name = "cache" if "cache" in signature(model.forward).parameters else "cache_params"
    with torch.no_grad():
        whole, cache, steps = model(input_ids=ids, use_cache=False).logits, None, []
        for t in range(TASK.n_positions):
            out = model(input_ids=ids[:, t : t + 1], use_cache=True, **{name: cache})
            cache = out[name]
            steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_a_saved_network_is_an_ordinary_mamba(tmp_path):
    model, ids = fresh(3, arch="mamba", n_layers=2, d_model=16), tokens(5)
    model.save_pretrained(tmp_path)
    opened, ours = AutoModelForCausalLM.from_pretrained(tmp_path), load_weights(tmp_path)
    assert {type(m) for m in opened.modules() if isinstance(m, MambaMixer)} == {MambaMixer}
    assert {type(m) for m in ours.modules() if isinstance(m, MambaMixer)} == {ScanMixer}
    assert '"MambaForCausalLM"' in (tmp_path / "config.json").read_text(encoding="utf-8")
    with torch.no_grad():
        torch.testing.assert_close(opened(input_ids=ids).logits, ours(input_ids=ids, use_cache=False).logits)
