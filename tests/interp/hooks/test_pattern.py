"""Attention rows in blocks: the same numbers whatever the block, with a cache prefix, and beside a strong sink."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from interp.hooks.pattern import AttentionCall, log_pattern_rows, pattern_rows, reduce_rows

SINK = torch.tensor([-9.0, 0.3, 2.0, 9.0])


def random_call(seed=0, n_query=17, n_key=17, strength=3.0):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 4, n_query, 8, generator=g)
    k = torch.randn(2, 2, n_key, 8, generator=g)
    return AttentionCall(0, q, k, k, scaling=strength / 8**0.5)


def all_positions(call):
    return torch.arange(call.q.shape[2]).expand(call.q.shape[0], -1)


def float64_pattern(call):
    """Weights of the keys, and behind them that of the sink where there is one."""
    q, k = call.q.double().numpy(), np.repeat(call.k.double().numpy(), 2, axis=1)
    s = np.where(np.tril(np.ones((17, 17), bool)), q @ k.transpose(0, 1, 3, 2) * call.scaling, -np.inf)
    if call.sink is not None:
        beside = np.broadcast_to(call.sink.double().numpy()[None, :, None, None], (*s.shape[:-1], 1))
        s = np.concatenate([s, beside], axis=-1)
    return softmax(s, axis=-1)


def previous(a):
    """The mass on the position before; the first has none."""
    return np.concatenate([np.zeros((2, 4, 1)), np.diagonal(a, -1, -2, -1)], axis=-1)


@pytest.mark.parametrize("sink", [None, SINK])
@pytest.mark.parametrize("block", [1, 2, 5, 17, 64])
def test_every_reduction_equals_the_float64_formula_whatever_the_block(block, sink):
    call = replace(random_call(), sink=sink)
    a = float64_pattern(call)
    keys = a[..., :17]
    learnt, n = a[..., 17:].sum(axis=-1), np.arange(1, 18)
    rest = keys[..., 1:, 1:] / keys[..., 1:, 1:].sum(axis=-1, keepdims=True)  # the first position has no other key
    bits, of_rest = entropy(keys, base=2, axis=-1), entropy(rest, base=2, axis=-1)
    expected = {
        "pattern_entropy": bits, "pattern_entropy_uniform": np.broadcast_to(np.log2(n), bits.shape),
        "pattern_entropy_with_learnt_sink": entropy(a, base=2, axis=-1), "learnt_sink_mass": learnt,
        "sink_mass": keys[..., 0], "pattern_max": keys.max(-1), "mass_self": np.diagonal(keys, 0, -2, -1),
        "mass_previous": previous(keys),
    }  # fmt: skip
    expected_of_rest = {
        "pattern_entropy_no_first": of_rest, "pattern_max_no_first": rest.max(-1),
        "pattern_entropy_normalised_no_first": np.divide(of_rest, np.log2(n[:-1]), out=of_rest * 0, where=n[:-1] > 1),
        "pattern_entropy_uniform_no_first": np.broadcast_to(np.log2(n[:-1]), of_rest.shape),
        "mass_self_no_first": np.diagonal(rest, 0, -2, -1), "mass_previous_no_first": previous(rest),
    }  # fmt: skip
    got = reduce_rows(call, all_positions(call), block)
    for name, values in expected.items():
        assert np.abs(getattr(got, name).numpy() - values).max() < 2e-6, name
    for name, values in expected_of_rest.items():
        assert np.abs(getattr(got, name)[..., 1:].numpy() - values).max() < 2e-6, name
    for name in ("pattern_max_no_first", "mass_self_no_first", "mass_previous_no_first"):
        assert torch.isnan(getattr(got, name)[..., 0]).all(), "the first position sees nothing but the first key"
    assert np.abs(pattern_rows(call, all_positions(call)).numpy() - keys).max() < 1e-6
    assert np.abs(log_pattern_rows(call, all_positions(call)).exp2().nan_to_num().numpy() - keys).max() < 1e-6
    if sink is None:
        assert torch.equal(got.pattern_entropy_with_learnt_sink, got.pattern_entropy)


def test_queries_after_a_cached_prefix_count_positions_from_the_right():
    long = random_call(n_query=17, n_key=17)
    short = AttentionCall(0, long.q[:, :, -3:], long.k, long.v, long.scaling)
    tail, whole = (reduce_rows(call, all_positions(call)) for call in (short, long))
    for name in ("pattern_entropy", "mass_self", "mass_previous"):
        assert torch.allclose(getattr(tail, name), getattr(whole, name)[..., -3:], atol=1e-6)


def test_a_padded_mask_removes_keys():
    call = random_call()
    call.mask = torch.ones(17, 17).tril().bool().expand(2, 1, -1, -1).clone()
    call.mask[1, :, :, :4] = False
    call.mask[1, :, :4, 0] = True
    got = reduce_rows(call, all_positions(call))
    assert got.n_visible[1, -1] == 13
    assert got.sink_mass[1, :, -1].max() == 0
    assert torch.allclose(got.pattern_entropy[0], reduce_rows(random_call(), all_positions(call)).pattern_entropy[0])


@pytest.mark.parametrize("score", [16.0, 900.0])  # of the second the exponential is infinite
def test_what_is_left_beside_a_sink_of_almost_one_keeps_its_precision(score):
    k = torch.tensor([score, 1.0, 1.0, 0.0]).reshape(1, 1, 4, 1)
    got = reduce_rows(AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0), torch.tensor([[3]]))
    assert got.sink_mass.item() > 0.999999
    assert score < 900 or (got.sink_mass.item() == 1 and got.pattern_entropy.item() == 0)
    weights = softmax([1.0, 1.0, 0.0])
    assert got.pattern_entropy_no_first.item() == pytest.approx(entropy(weights, base=2), abs=1e-5)
    assert got.pattern_max_no_first.item() == pytest.approx(weights[0], abs=1e-6)
    assert got.mass_self_no_first.item() == pytest.approx(weights[2], abs=1e-6)


def test_a_single_visible_key_has_no_entropy():
    got = reduce_rows(random_call(), torch.zeros(2, 1, dtype=torch.long))
    for name in ("pattern_entropy", "pattern_entropy_no_first", "pattern_entropy_normalised"):
        assert getattr(got, name).abs().max() == 0
    assert torch.all(got.sink_mass == 1)


def test_log_rows_keep_weights_that_float32_would_round_to_zero():
    k = torch.tensor([300.0, 0.0, 100.0, 0.0]).view(1, 1, 4, 1)
    call = AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0)
    row = log_pattern_rows(call, torch.tensor([[2]]))[0, 0, 0]
    assert pattern_rows(call, torch.tensor([[2]]))[0, 0, 0, 1] == 0
    assert row[:3].tolist() == pytest.approx([0.0, -300 / np.log(2), -200 / np.log(2)], rel=1e-6)
    assert torch.isnan(row[3])
