"""The networks are what their sizes say, and impossible sizes are refused."""

import numpy as np
import pytest
import torch

from interp.errors import UsageError
from wind_tunnels.bijection import Bijection
from wind_tunnels.networks import FAMILIES, Network, build, logits_at, n_parameters, predict

TASK = Bijection(V=6, L=8)


def fresh(network: Network, seed: int = 0):
    return build(network, TASK, torch.Generator().manual_seed(seed))


def tokens(n: int = 3) -> torch.Tensor:
    return torch.from_numpy(TASK.sample(np.random.default_rng(0), n).tokens)


@pytest.mark.parametrize("arch", FAMILIES)
def test_family_is_a_causal_model_of_that_family(arch):
    model = fresh(Network(arch=arch))
    assert model.config.model_type == arch.replace("-", "_")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    before = tokens()
    after = before.clone()
    after[:, 5:] = (after[:, 5:] + 1) % TASK.vocab_size
    with torch.no_grad():
        first, second = (model(input_ids=t).logits for t in (before, after))
    torch.testing.assert_close(first[:, :5], second[:, :5], rtol=0, atol=1e-6)
    assert (first[:, 5:] - second[:, 5:]).abs().max() > 1e-2


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
    assert n_parameters(build(network, Bijection(), torch.Generator().manual_seed(0))) == expected


@pytest.mark.parametrize("arch", FAMILIES)
def test_logits_at_scored_positions_are_those_of_the_whole_forward(arch):
    model, scored = fresh(Network(arch=arch)), torch.tensor([0, 4, 10])
    with torch.no_grad():
        whole = model(input_ids=tokens()).logits
        torch.testing.assert_close(logits_at(model, tokens(), scored), whole[:, scored], rtol=1e-5, atol=1e-6)


def test_predictions_are_log_probabilities_whatever_the_batch():
    model = fresh(Network())
    sequences = TASK.sample(np.random.default_rng(0), 7)
    whole = predict(model, sequences.tokens, sequences.scored)
    np.testing.assert_allclose(np.exp(whole).sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(predict(model, sequences.tokens, sequences.scored, batch=3), whole, atol=1e-5)
    assert whole.dtype == np.float64


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(0)
    first = fresh(Network()).state_dict()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    second, other = fresh(Network()).state_dict(), fresh(Network(), seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@pytest.mark.parametrize("arch", FAMILIES)
def test_weights_start_at_their_spread(arch):
    model = fresh(Network(arch=arch, d_model=128, init_std=0.1, embedding_std=1.0, residual_scale=0.25))
    spread = {name: p.std().item() for name, p in model.named_parameters() if p.ndim == 2}
    writers = [name for name in spread if FAMILIES[arch].residual_writers[0] in name]
    writers += [name for name in spread if FAMILIES[arch].residual_writers[1] in name]
    assert len(writers) == 2 * 3
    for name, std in spread.items():
        expected = 1.0 if "embed" in name else 0.025 if name in writers else 0.1
        assert std == pytest.approx(expected, rel=0.08), name


def test_grouped_heads_share_keys_and_values():
    attention = fresh(Network(arch="llama", n_heads=4, n_kv_heads=2)).model.layers[0].self_attn
    assert attention.q_proj.weight.shape == (64, 64)
    assert attention.k_proj.weight.shape == attention.v_proj.weight.shape == (32, 64)


def test_window_hides_what_has_left_it():
    model = fresh(Network(arch="mistral", n_layers=1, window=4))
    before = tokens()
    after = before.clone()
    after[:, 0] = (after[:, 0] + 1) % TASK.vocab_size
    with torch.no_grad():
        change = (model(input_ids=before).logits - model(input_ids=after).logits).abs().amax(dim=(0, 2))
    assert (change[:4] > 1e-4).all()
    assert (change[4:] == 0).all()


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"arch": "gpt"}, "there is no architecture of this name"),
        ({"n_heads": 3}, "3 heads do not divide d_model = 64 into even parts"),
        ({"n_heads": 64}, "64 heads do not divide d_model = 64 into even parts"),
        ({"n_layers": 0}, "n_layers = 0"),
        ({"d_mlp": -1}, "d_mlp = -1"),
        ({"n_kv_heads": 2}, "gpt-neox has no grouped heads"),
        ({"arch": "llama", "n_kv_heads": 3}, "3 key-value heads do not divide 4 heads"),
        ({"arch": "llama", "window": 4}, "llama has no window"),
        ({"arch": "mistral", "window": 0}, "window = 0"),
        ({"init_std": 0.0}, "init_std = 0.0"),
    ],
)
def test_impossible_sizes_are_refused_in_words(sizes, words):
    with pytest.raises(UsageError) as refusal:
        Network(**sizes)
    assert words in str(refusal.value)
