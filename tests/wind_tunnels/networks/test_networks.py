"""The networks are what their sizes say and compute what they should; experts are as drawn and balanced."""

import copy
from inspect import signature

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.architectures import ARCHITECTURES, Network
from interp.wind_tunnels.networks.equal_capacity import matched_to
from interp.wind_tunnels.networks.networks import BUILDERS, build, count_parameters, logits_at, predict
from interp.wind_tunnels.networks.selective_scan import ScanMixer, scan_quickly
from interp.wind_tunnels.networks.weights import load_weights
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.mixture import Mixture
from interp.wind_tunnels.training.loop import losses
from interp.wind_tunnels.training.plan import Recipe, TrainingPlan
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from transformers.models.mamba.modeling_mamba import MambaMixer

from interp.errors import UsageError
from interp.loading.load import active_window
from tests.quick import quick

TASK = Bijection(V=6, L=8)
TRANSFORMERS = [arch for arch, kind in ARCHITECTURES.items() if "attention" in kind]
KINDS = {"mlp-position": "mlp", "mlp-context": "mlp", "gpt-neox": "gpt_neox"}


def fresh(network: Network, seed: int = 0):
    return build(network, TASK, torch.Generator().manual_seed(seed))


def tokens(n: int = 3) -> torch.Tensor:
    return torch.from_numpy(TASK.sample(np.random.default_rng(0), n).tokens)


@pytest.mark.parametrize("arch", BUILDERS)
def test_family_is_a_causal_model_with_parameters_counted_and_logits_at_scored_positions(arch):
    model = fresh(Network(arch=arch))
    assert model.config.model_type == KINDS.get(arch, arch)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    before = tokens()
    after = before.clone()
    after[:, 5] = (after[:, 5] + 1) % TASK.vocab_size
    with torch.no_grad():
        change = (model(input_ids=before).logits - model(input_ids=after).logits).abs().amax(dim=(0, 2)).numpy()
    is_seen = np.arange(TASK.n_positions) == 5 if arch == "mlp-position" else np.arange(TASK.n_positions) >= 5
    assert (change > 1e-6).tolist() == is_seen.tolist() and change[5] > 1e-2
    scored = torch.tensor([0, 4, 10])
    with torch.no_grad():
        whole = model(input_ids=tokens()).logits
        torch.testing.assert_close(logits_at(model, tokens(), scored), whole[:, scored], rtol=1e-5, atol=1e-6)
    assert count_parameters(Network(arch=arch), TASK) == model.num_parameters()


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (Network(arch="gpt-neox"), 152_640),
        (Network(arch="llama"), 150_080),
        (Network(arch="llama", n_kv_heads=2), 137_792),
        (Network(arch="mistral", n_kv_heads=2, window=12), 137_792),
    ],
    ids=str,
)
def test_parameter_counts_match_between_families_at_the_shipped_size(network, expected):
    assert build(network, Bijection(), torch.Generator().manual_seed(0)).num_parameters() == expected


def test_tables_windows_and_predictions_do_not_depend_on_length_or_batch():
    model = fresh(Network())
    sequences = TASK.sample(np.random.default_rng(0), 7)
    whole = predict(model, sequences.tokens, sequences.scored)
    np.testing.assert_allclose(np.exp(whole).sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(predict(model, sequences.tokens, sequences.scored, batch=3), whole, atol=1e-5)
    assert whole.dtype == np.float64
    with torch.no_grad():
        before = model(input_ids=tokens()).logits
        model.config.max_position_embeddings = 32
        short = type(model)(model.config).eval()
        short.load_state_dict(model.state_dict())
        assert torch.equal(short(input_ids=tokens()).logits, before)


@pytest.mark.parametrize("arch", ["gpt-neox", "mamba", "mixtral"])
def test_weights_come_from_the_generator_alone(arch):
    torch.manual_seed(0)
    first = fresh(Network(arch=arch)).state_dict()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    second, other = (fresh(Network(arch=arch), seed).state_dict() for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = [name for name, value in first.items() if (value.ndim > 1 and "A_log" not in name) or "dt_proj" in name]
    assert drawn and not any(torch.equal(first[name], other[name]) for name in drawn)


def test_architectures_can_be_built_share_heads_and_have_windows():
    assert set(BUILDERS) == set(ARCHITECTURES)
    assert active_window(fresh(Network(arch="mistral", window=40)).config) == 40
    assert active_window(fresh(Network(arch="mistral")).config) is None
    attention = fresh(Network(arch="llama", n_heads=4, n_kv_heads=2)).model.layers[0].self_attn
    assert attention.q_proj.weight.shape == (64, 64)
    assert attention.k_proj.weight.shape == attention.v_proj.weight.shape == (32, 64)


@pytest.mark.parametrize("arch", BUILDERS)
def test_what_is_saved_is_what_is_read(arch, tmp_path):
    model = fresh(Network(arch=arch))
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(model)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    scan_quickly(again)  # the same sums in the same order; the plain scan agrees to rounding, in test_selective_scan
    with torch.no_grad():
        assert torch.equal(model(input_ids=tokens()).logits, again(input_ids=tokens()).logits)


@pytest.mark.parametrize("arch", TRANSFORMERS)
def test_weights_start_at_their_spread_and_long_sequences_can_be_read(arch):
    config = fresh(Network(arch=arch)).config
    assert config.max_position_embeddings >= max(1024, 4 * TASK.n_positions)
    model = fresh(Network(arch=arch, d_model=128, init_std=0.1, embedding_std=1.0, residual_scale=0.25))
    spread = {name: p.std().item() for name, p in model.named_parameters() if p.ndim >= 2}
    (embedding,) = (name for name, p in model.named_parameters() if p is model.get_input_embeddings().weight)
    writers = [name for name in spread if BUILDERS[arch].residual_writers[0] in name]
    writers += [name for name in spread if BUILDERS[arch].residual_writers[1] in name]
    assert len(writers) == 2 * 3
    for name, std in spread.items():
        expected = 1.0 if name == embedding else 0.025 if name in writers else 0.1
        assert std == pytest.approx(expected, rel=0.08), name


@pytest.mark.parametrize(
    ("given", "layers"), [([1, 0], (0, 1)), ((2,), (2,)), (1, (1,)), ("0,2", (0, 2)), ([], ()), ((0, 0), (0,))]
)
def test_layers_can_be_given_as_a_card_or_a_command_line_gives_them(given, layers):
    assert Network(attention_layers=given).attention_layers == layers


SMALL = Network(arch="mixtral", n_layers=2, d_model=32, d_mlp=24)


def made():
    return build(SMALL, Mixture(), torch.Generator().manual_seed(0))


def test_the_load_balancing_loss_is_transformers_own_and_no_part_of_the_cross_entropy():
    model, sequences = made(), Mixture().sample(np.random.default_rng(0), 12)
    loss, uneven = losses(model, sequences, "labels", balanced=True)
    assert loss.item() == pytest.approx(losses(model, sequences, "labels")[0].item(), rel=1e-6)
    with torch.no_grad():
        logits = model(torch.from_numpy(sequences.tokens), output_router_logits=True).router_logits
    p = torch.softmax(torch.cat([x.reshape(-1, 4) for x in logits]), dim=-1)  # [layer * position, expert]
    chosen = torch.zeros_like(p).scatter(1, p.topk(2).indices, 1.0)
    assert uneven.item() == pytest.approx(4 * (chosen.mean(0) * p.mean(0)).sum().item(), rel=1e-5)
    with pytest.raises(UsageError, match="no experts to keep in balance"):
        TrainingPlan(Mixture(), Network(arch="llama"), Recipe(balance=0.01))


REFERENCE = Network(arch="gpt-neox", n_layers=2, d_model=48)


@pytest.mark.parametrize("n_layers", quick([1], [1, 3]))
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_parameter_counts_agree_within_two_per_cent(arch, n_layers):
    network = Network(arch=arch, n_layers=n_layers, init_std=0.07)
    matched = matched_to(network, REFERENCE, TASK)
    made = build(matched, TASK, torch.Generator().manual_seed(0)).num_parameters()
    assert abs(made / count_parameters(REFERENCE, TASK) - 1) <= 0.02
    assert (matched.arch, matched.n_layers, matched.init_std) == (arch, n_layers, 0.07)


def test_networks_are_matched_to_the_nearest_width_or_refused():
    matched = matched_to(REFERENCE, REFERENCE, TASK)
    assert (matched.d_model, matched.d_feed_forward) == (48, 192)
    target = count_parameters(REFERENCE, TASK)
    width = matched_to(Network(arch="lstm", n_layers=2), REFERENCE, TASK).d_model
    gaps = {d: abs(count_parameters(Network(arch="lstm", n_layers=2, d_model=d), TASK) / target - 1)
            for d in range(width - 2, width + 3)}  # fmt: skip
    assert min(gaps, key=gaps.__getitem__) == width
    small = Network(n_layers=1, d_model=16)
    target = count_parameters(small, TASK)
    with pytest.raises(UsageError) as refusal:
        matched_to(Network(arch="lstm", n_layers=4), small, TASK)
    words = str(refusal.value)
    assert f"lstm of 4 layers with the {target:,} parameters of gpt-neox" in words
    below, above = (count_parameters(Network(arch="lstm", n_layers=4, d_model=d), TASK) for d in (9, 10))
    assert f"{below:,} with d_model = 9 and {above:,} with d_model = 10" in words
    assert below < 0.98 * target and above > 1.02 * target
    tiny = Network(n_layers=1, n_heads=1, d_model=2, d_mlp=1)
    with pytest.raises(UsageError, match="the nearest have"):
        matched_to(Network(arch="llama", n_layers=6), tiny, TASK)


def head(model, x: torch.Tensor) -> torch.Tensor:
    norm = model.final_norm
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps) @ model.lm_head.weight.T


def test_a_plain_lstm_is_torchs_stacked_lstm():
    model = fresh(Network(arch="lstm", d_model=12, has_residual=False))
    stacked = nn.LSTM(12, 12, num_layers=3, batch_first=True)
    for layer, block in enumerate(model.layers):
        for name, value in block.lstm.state_dict().items():
            stacked.state_dict()[name.replace("l0", f"l{layer}")].copy_(value)
    with torch.no_grad():
        expected = head(model, stacked(model.embed_tokens(tokens()))[0])
        torch.testing.assert_close(model(input_ids=tokens()).logits, expected, rtol=1e-5, atol=1e-6)


def test_a_residual_layer_adds_what_its_lstm_makes_of_the_normed_stream():
    model = fresh(Network(arch="lstm", n_layers=1, d_model=6)).double()
    block, ids = model.layers[0], tokens(1)
    with torch.no_grad():
        x = model.embed_tokens(ids)
        expected = head(model, x + block.lstm(F.layer_norm(x, (6,)))[0])
        torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("arch", "n_context"), [("mlp-position", 1), ("mlp-context", 15)])
def test_a_feed_forward_is_its_matrices_on_the_tokens_side_by_side(arch, n_context):
    model, ids = fresh(Network(arch=arch, n_layers=2, d_model=6)).double(), tokens(1)
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
    model = fresh(Network(arch="lstm"))
    with torch.no_grad():
        whole = model(input_ids=tokens()).logits
        some = model(input_ids=tokens(), logits_to_keep=kept).logits
    expected = whole[:, kept] if isinstance(kept, torch.Tensor) else whole[:, -kept:]
    torch.testing.assert_close(some, expected, rtol=1e-5, atol=1e-6)


def test_networks_without_attention_start_at_their_spread():
    for block in fresh(Network(arch="lstm", d_model=64)).layers:
        lstm = block.lstm
        assert torch.equal(lstm.bias_ih_l0, torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(64))
        assert not lstm.bias_hh_l0.any()
        assert lstm.weight_ih_l0.std().item() == pytest.approx(0.1, rel=0.05)
        assert lstm.weight_hh_l0.std().item() == pytest.approx(0.1, rel=0.05)
    model = fresh(Network(arch="mlp-context", d_model=96))
    block = model.layers[1].mlp
    spreads = {model.embed_tokens: 1.0, model.join: 0.1, block.up: 0.1, block.down: 0.025, model.lm_head: 0.1}
    for module, spread in spreads.items():
        assert module.weight.std().item() == pytest.approx(spread, rel=0.08)


def test_a_state_space_keeps_its_rates():
    mixer = fresh(Network(arch="mamba")).backbone.layers[0].mixer
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
    ours = fresh(Network(arch="mamba", n_layers=2, d_model=16), 3).train()
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
    model, ids = fresh(Network(arch="mamba", n_layers=2, d_model=16), 3), tokens(2)
    name = "cache" if "cache" in signature(model.forward).parameters else "cache_params"
    with torch.no_grad():
        whole, cache, steps = model(input_ids=ids, use_cache=False).logits, None, []
        for t in range(TASK.n_positions):
            out = model(input_ids=ids[:, t : t + 1], use_cache=True, **{name: cache})
            cache = out[name]
            steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-5)


def test_a_saved_network_is_an_ordinary_mamba(tmp_path):
    model, ids = fresh(Network(arch="mamba", n_layers=2, d_model=16), 3), tokens(5)
    model.save_pretrained(tmp_path)
    opened, ours = AutoModelForCausalLM.from_pretrained(tmp_path), load_weights(tmp_path)
    assert {type(m) for m in opened.modules() if isinstance(m, MambaMixer)} == {MambaMixer}
    assert {type(m) for m in ours.modules() if isinstance(m, MambaMixer)} == {ScanMixer}
    assert '"MambaForCausalLM"' in (tmp_path / "config.json").read_text(encoding="utf-8")
    with torch.no_grad():
        torch.testing.assert_close(opened(input_ids=ids).logits, ours(input_ids=ids, use_cache=False).logits)
