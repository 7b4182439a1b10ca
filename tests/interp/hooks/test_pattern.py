"""Attention rows in blocks: the same numbers whatever the block, with a cache prefix, and beside a strong sink."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from interp.hooks.pattern import AttentionCall, log_pattern_rows, pattern_rows, reduce_rows


def random_call(seed=0, n_query=17, n_key=17, strength=3.0):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 4, n_query, 8, generator=g)
    k = torch.randn(2, 2, n_key, 8, generator=g)
    return AttentionCall(0, q, k, k, scaling=strength / 8**0.5)


def all_positions(call):
    return torch.arange(call.q.shape[2]).expand(call.q.shape[0], -1)


@pytest.mark.parametrize("block", [1, 2, 5, 17, 64])
def test_reductions_do_not_depend_on_the_block(block):
    call = random_call()
    whole = reduce_rows(call, all_positions(call))
    cut = reduce_rows(call, all_positions(call), block)
    assert torch.allclose(cut.entropy_bits, whole.entropy_bits, atol=1e-6)
    assert torch.allclose(cut.entropy_bits_no_first, whole.entropy_bits_no_first, atol=1e-6)
    assert torch.allclose(cut.sink_mass, whole.sink_mass, atol=1e-6)


def test_reductions_equal_the_float64_formula():
    call = random_call()
    q, k = call.q.double().numpy(), np.repeat(call.k.double().numpy(), 2, axis=1)
    s = q @ k.transpose(0, 1, 3, 2) * call.scaling
    s = np.where(np.tril(np.ones((17, 17), bool)), s, -np.inf)
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    entropy = -np.sum(a * np.log2(a, out=np.zeros_like(a), where=a > 0), -1)
    got = reduce_rows(call, all_positions(call))
    assert np.abs(got.entropy_bits.numpy() - entropy).max() < 2e-6
    assert np.abs(pattern_rows(call, all_positions(call)).numpy() - a).max() < 1e-6


def test_reductions_beside_a_learnt_sink_equal_the_float64_formula():
    sink = torch.tensor([-9.0, 0.3, 2.0, 9.0])
    call = replace(random_call(), sink=sink)
    q, k = call.q.double().numpy(), np.repeat(call.k.double().numpy(), 2, axis=1)
    s = q @ k.transpose(0, 1, 3, 2) * call.scaling
    s = np.where(np.tril(np.ones((17, 17), bool)), s, -np.inf)
    beside = np.broadcast_to(sink.double().numpy()[None, :, None, None], (*s.shape[:-1], 1))
    a = softmax(np.concatenate([s, beside], axis=-1), axis=-1)
    keys, learnt = a[..., :-1], a[..., -1]
    got = reduce_rows(call, all_positions(call))
    expected = {
        "learnt_sink_mass": learnt, "sink_mass": keys[..., 0], "max_weight": keys.max(-1),
        "self_mass": np.diagonal(keys, 0, -2, -1), "entropy_bits_with_learnt_sink": entropy(a, base=2, axis=-1),
        "entropy_bits": entropy(keys, base=2, axis=-1),
    }  # fmt: skip
    for name, values in expected.items():
        assert np.abs(getattr(got, name).numpy() - values).max() < 2e-6, name
    assert np.abs(pattern_rows(call, all_positions(call)).numpy() - keys).max() < 1e-6
    logs = log_pattern_rows(call, all_positions(call)).exp2().nan_to_num()
    assert np.abs(logs.numpy() - keys).max() < 1e-6
    whole = reduce_rows(replace(call, sink=None), all_positions(call))
    assert not whole.learnt_sink_mass.any()
    assert torch.equal(whole.entropy_bits_with_learnt_sink, whole.entropy_bits)
    assert torch.equal(whole.entropy_bits_no_first, got.entropy_bits_no_first)


def test_reductions_without_the_first_key_equal_the_float64_formula():
    call = random_call()
    rest = float64_pattern(call)[..., 1:, 1:]  # the first position has no other key
    rest = rest / rest.sum(axis=-1, keepdims=True)
    entropy = -np.sum(rest * np.log2(rest, out=np.zeros_like(rest), where=rest > 0), axis=-1)
    got = reduce_rows(call, all_positions(call))
    n = np.arange(1, 17)
    normalised = np.divide(entropy, np.log2(n), out=np.zeros_like(entropy), where=n > 1)
    previous = np.concatenate([np.zeros((2, 4, 1)), np.diagonal(rest, -1, -2, -1)], axis=-1)
    expected = {
        "entropy_bits_no_first": entropy, "entropy_normalised_no_first": normalised,
        "entropy_uniform_no_first": np.broadcast_to(np.log2(n), entropy.shape), "max_weight_no_first": rest.max(-1),
        "self_mass_no_first": np.diagonal(rest, 0, -2, -1), "previous_mass_no_first": previous,
    }  # fmt: skip
    for name, values in expected.items():
        assert np.abs(getattr(got, name)[..., 1:].numpy() - values).max() < 2e-6, name
    for name in ("max_weight_no_first", "self_mass_no_first", "previous_mass_no_first"):
        assert torch.isnan(getattr(got, name)[..., 0]).all(), "the first position sees nothing but the first key"


def test_positions_count_from_the_right_after_a_cached_prefix():
    long = random_call(n_query=17, n_key=17)
    short = AttentionCall(0, long.q[:, :, -3:], long.k, long.v, long.scaling)
    tail = reduce_rows(short, all_positions(short)).entropy_bits
    assert torch.allclose(tail, reduce_rows(long, all_positions(long)).entropy_bits[..., -3:], atol=1e-6)
    long = random_call()
    short = AttentionCall(0, long.q[:, :, -3:], long.k, long.v, long.scaling)
    tail, whole = (reduce_rows(c, all_positions(c)) for c in (short, long))
    assert torch.allclose(tail.self_mass, whole.self_mass[..., -3:], atol=1e-6)
    assert torch.allclose(tail.previous_mass, whole.previous_mass[..., -3:], atol=1e-6)


def test_masks_single_keys_and_tiny_weights_are_counted_as_they_are():
    call = random_call()
    call.mask = torch.ones(17, 17).tril().bool().expand(2, 1, -1, -1).clone()
    call.mask[1, :, :, :4] = False
    call.mask[1, :, :4, 0] = True
    got = reduce_rows(call, all_positions(call))
    assert got.n_visible[1, -1] == 13
    assert got.sink_mass[1, :, -1].max() == 0
    assert torch.allclose(got.entropy_bits[0], reduce_rows(random_call(), all_positions(call)).entropy_bits[0])
    got = reduce_rows(random_call(), torch.zeros(2, 1, dtype=torch.long))
    assert got.entropy_bits.abs().max() == 0
    assert got.entropy_bits_no_first.abs().max() == 0
    assert got.entropy_normalised.abs().max() == 0
    assert torch.all(got.sink_mass == 1)
    k = torch.tensor([300.0, 0.0, 100.0, 0.0]).view(1, 1, 4, 1)
    call = AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0)
    row = log_pattern_rows(call, torch.tensor([[2]]))[0, 0, 0]
    assert pattern_rows(call, torch.tensor([[2]]))[0, 0, 0, 1] == 0
    assert row[:3].tolist() == pytest.approx([0.0, -300 / np.log(2), -200 / np.log(2)], rel=1e-6)
    assert torch.isnan(row[3])


def test_what_is_left_beside_a_sink_keeps_its_precision():
    k = torch.zeros(1, 1, 4, 1)
    k[0, 0, :, 0] = torch.tensor([16.0, 1.0, 1.0, 1.0])
    call = AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0)
    got = reduce_rows(call, torch.tensor([[3]]))
    assert got.sink_mass.item() > 0.999999
    assert abs(got.entropy_bits_no_first.item() - np.log2(3)) < 1e-5
    k = torch.tensor([900.0, 1.0, 1.0, 0.0]).reshape(1, 1, 4, 1)
    got = reduce_rows(AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0), torch.tensor([[3]]))
    assert got.sink_mass.item() == 1 and got.entropy_bits.item() == 0
    weights = np.exp([1.0, 1.0, 0.0]) / np.exp([1.0, 1.0, 0.0]).sum()
    assert got.entropy_bits_no_first.item() == pytest.approx(-(weights * np.log2(weights)).sum(), abs=1e-5)
    assert got.max_weight_no_first.item() == pytest.approx(weights[0], abs=1e-6)
    assert got.self_mass_no_first.item() == pytest.approx(weights[2], abs=1e-6)


def float64_pattern(call):
    q, k = call.q.double().numpy(), np.repeat(call.k.double().numpy(), 2, axis=1)
    s = np.where(np.tril(np.ones((17, 17), bool)), q @ k.transpose(0, 1, 3, 2) * call.scaling, -np.inf)
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


@pytest.mark.parametrize("block", [3, 64])
def test_masses_and_the_largest_weight_equal_the_float64_formula(block):
    call = random_call()
    a = float64_pattern(call)
    got = reduce_rows(call, all_positions(call), block)
    assert np.abs(got.max_weight.numpy() - a.max(-1)).max() < 1e-6
    assert np.abs(got.self_mass.numpy() - a.diagonal(axis1=2, axis2=3)).max() < 1e-6
    assert np.abs(got.previous_mass.numpy()[..., 1:] - a.diagonal(-1, axis1=2, axis2=3)).max() < 1e-6
    assert got.previous_mass[..., 0].abs().max() == 0
    assert np.allclose(got.entropy_uniform.numpy(), np.log2(np.arange(1, 18)))
