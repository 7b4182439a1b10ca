"""Attention rows in blocks, with a cache prefix and beside a sink; attended against unattended keys; borrowed keys."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from interp.hooks.pattern import AttentionCall, log_pattern_rows, pattern_rows, reduce_rows
from interp.hooks.pattern_sites import attended_keys, contrast_rows
from interp.need import Need
from interp.prompt import Clusters, PromptSet
from interp.reading.forward import capture
from tests.interp.hooks.test_attention import token_prompts
from tests.tiny_models import tiny_model

SINK = torch.tensor([-9.0, 0.3, 2.0, 9.0])


def random_call(n_query=17, n_key=17):
    g = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, n_query, 8, generator=g)
    k = torch.randn(2, 2, n_key, 8, generator=g)
    return AttentionCall(0, q, k, k, scaling=3.0 / 8**0.5)


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
        assert np.abs(got[name].numpy() - values).max() < 2e-6, name
    for name, values in expected_of_rest.items():
        assert np.abs(got[name][..., 1:].numpy() - values).max() < 2e-6, name
    for name in ("pattern_max_no_first", "mass_self_no_first", "mass_previous_no_first"):
        assert torch.isnan(got[name][..., 0]).all(), "the first position sees nothing but the first key"
    for name in ("pattern_entropy", "pattern_entropy_no_first", "pattern_entropy_normalised"):
        assert not got[name][..., 0].any(), "a single key has no entropy"
    assert np.abs(pattern_rows(call, all_positions(call)).numpy() - keys).max() < 1e-6
    assert np.abs(log_pattern_rows(call, all_positions(call)).exp2().nan_to_num().numpy() - keys).max() < 1e-6
    if sink is None:
        assert torch.equal(got["pattern_entropy_with_learnt_sink"], got["pattern_entropy"])


def test_queries_after_a_cached_prefix_count_positions_from_the_right():
    long = random_call(n_query=17, n_key=17)
    short = AttentionCall(0, long.q[:, :, -3:], long.k, long.v, long.scaling)
    tail, whole = (reduce_rows(call, all_positions(call)) for call in (short, long))
    for name in ("pattern_entropy", "mass_self", "mass_previous"):
        assert torch.allclose(tail[name], whole[name][..., -3:], atol=1e-6)


def test_a_padded_mask_removes_keys():
    call = random_call()
    call.mask = torch.ones(17, 17).tril().bool().expand(2, 1, -1, -1).clone()
    call.mask[1, :, :, :4] = False
    call.mask[1, :, :4, 0] = True
    got = reduce_rows(call, all_positions(call))
    assert got["pattern_entropy_uniform"][1, 0, -1].exp2().item() == pytest.approx(13)
    assert got["sink_mass"][1, :, -1].max() == 0
    assert torch.allclose(
        got["pattern_entropy"][0], reduce_rows(random_call(), all_positions(call))["pattern_entropy"][0]
    )


@pytest.mark.parametrize("score", [16.0, 900.0])  # of the second the exponential is infinite
def test_what_is_left_beside_a_sink_of_almost_one_keeps_its_precision(score):
    k = torch.tensor([score, 1.0, 1.0, 0.0]).reshape(1, 1, 4, 1)
    got = reduce_rows(AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0), torch.tensor([[3]]))
    assert got["sink_mass"].item() > 0.999999
    assert score < 900 or (got["sink_mass"].item() == 1 and got["pattern_entropy"].item() == 0)
    weights = softmax([1.0, 1.0, 0.0])
    assert got["pattern_entropy_no_first"].item() == pytest.approx(entropy(weights, base=2), abs=1e-5)
    assert got["pattern_max_no_first"].item() == pytest.approx(weights[0], abs=1e-6)
    assert got["mass_self_no_first"].item() == pytest.approx(weights[2], abs=1e-6)


def test_log_rows_keep_weights_that_float32_would_round_to_zero():
    k = torch.tensor([300.0, 0.0, 100.0, 0.0]).view(1, 1, 4, 1)
    call = AttentionCall(0, torch.ones(1, 1, 4, 1), k, k, scaling=1.0)
    row = log_pattern_rows(call, torch.tensor([[2]]))[0, 0, 0]
    assert pattern_rows(call, torch.tensor([[2]]))[0, 0, 0, 1] == 0
    assert row[:3].tolist() == pytest.approx([0.0, -300 / np.log(2), -200 / np.log(2)], rel=1e-6)
    assert torch.isnan(row[3])


NULLS = ("pattern_entropy_null", "pattern_entropy_no_first_null", "pattern_max_null", "qk_cosine_null", "qk_logit_null")


def test_attended_keys_are_the_fewest_that_hold_half():
    half = 0.49999994  # what softmax may give of two equal keys
    weights = torch.tensor(
        [[0.1, 0.3, 0.05, 0.35, 0.2], [0.5, 0.5, 0, 0, 0], [0.6, 0.1, 0.1, 0.1, 0.1], [half, half, 0, 0, 0]]
    )
    first = [True] + [False] * 4
    expected = [[False, True, False, True, False], first, first, first]
    assert attended_keys(weights).tolist() == expected


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("block", [1, 4, 64])
def test_contrasts_equal_the_float64_formula(block, first):
    """Of all keys, and of those from the second on with the weights renormalised."""
    call = random_call()
    a = float64_pattern(call)
    if first:
        a[..., 0] = 0
        a /= np.maximum(a.sum(axis=-1, keepdims=True), 1e-300)
    q, k = call.q.double().numpy(), np.repeat(call.k.double().numpy(), 2, axis=1)
    dot = q @ k.transpose(0, 1, 3, 2)
    cosine = dot / np.linalg.norm(q, axis=-1)[..., None] / np.linalg.norm(k, axis=-1)[:, :, None]
    got = contrast_rows(call, all_positions(call), block)
    both = (got["qk_cosine_no_first"], got["qk_logit_no_first"]) if first else (got["qk_cosine"], got["qk_logit"])
    for item, head, row in np.ndindex(2, 4, 17):
        order = first + np.argsort(-a[item, head, row, first : row + 1])
        n = int(np.searchsorted(np.cumsum(a[item, head, row][order]), 0.5)) + 1
        if n > row - first:
            assert torch.isnan(both[0][item, head, row]) and torch.isnan(both[1][item, head, row])
            continue
        for contrast, x in ((both[0], cosine), (both[1], dot * call.scaling / np.log(2))):
            x = x[item, head, row][order]
            assert contrast[item, head, row].item() == pytest.approx(x[:n].mean() - x[n:].mean(), abs=1e-4)


@pytest.mark.parametrize("tokens_per_batch", [1, 30, 10_000])
@pytest.mark.parametrize(
    ("lengths", "clusters", "lender"),
    [
        ([9, 5, 9, 7, 5], None, {2: 0, 4: 1}),
        ([7, 7, 7, 7, 7], [0, 0, 0, 1, 1], {3: 0, 1: 3, 4: 1, 2: 4}),
        ([7, 7, 7], [0, 0, 0], {}),
    ],
)
def test_null_sites_read_the_keys_of_another_prompt_of_the_same_length(tokens_per_batch, lengths, clusters, lender):
    """The one that was read before, if it is of another cluster; others have none."""
    model = tiny_model("llama")
    prompts, ids = token_prompts(lengths)
    if clusters is not None:
        prompts = replace(prompts, clusters=Clusters(np.array(clusters), "made up"))
    needs = [Need(site) for site in (*NULLS, "pattern_entropy")] + [Need(site, at="all") for site in ("q", "k")]
    got = capture(model, prompts, ids, needs, tokens_per_batch=tokens_per_batch)
    start = np.cumsum([0, *lengths[:-1]])
    alone = [i for i in range(len(ids)) if i not in lender]
    for site in NULLS:
        assert np.isnan(got[Need(site)][:, alone]).all()
    for layer, (borrower, lent) in ((layer, pair) for layer in range(3) for pair in lender.items()):
        n = len(ids[borrower])
        k = got[Need("k", at="all")][layer, start[lent] : start[lent] + n]
        s = np.einsum("hd,khd->hk", got[Need("q", at="all")][layer, start[borrower] + n - 1], k.repeat(2, axis=1))
        a = softmax(s / np.sqrt(12), axis=-1)
        of_rest = entropy(a[:, 1:], base=2, axis=-1)
        for site, expected in zip(NULLS, (entropy(a, base=2, axis=-1), of_rest, a.max(-1)), strict=False):
            assert np.abs(got[Need(site)][layer, borrower] - expected).max() < 1e-4, site


def test_a_prompt_of_equal_tokens_before_it_changes_nothing():
    prompts, ids = token_prompts([8])
    twice = PromptSet("twice", [prompts.prompts[0]] * 2)
    sites = ("pattern_entropy", "pattern_max", "qk_cosine", "qk_logit")
    got = capture(tiny_model("phi"), twice, ids * 2, [Need(s + end) for s in sites for end in ("", "_null")])
    for site in sites:
        assert np.abs(got[Need(site)][:, 1] - got[Need(f"{site}_null")][:, 1]).max() < 1e-5


def test_whole_rows_and_tunnel_positions_are_kept_for_tunnels_alone():
    needs = [Need("pattern_log_weight"), Need("k_pre", at="tunnel"), Need("mass_previous", at="tunnel"),
             Need("k_pre", at="all")]  # fmt: skip
    model = tiny_model("gpt_neox")
    plain = capture(model, *token_prompts([6, 4]), needs)
    assert plain[needs[0]].shape == (3, 2, 4, 0)
    assert plain[needs[1]].shape == (3, 0, 4, 12) and plain[needs[2]].shape == (3, 0, 4)
    prompts, ids = token_prompts([6, 4])
    tunnel = capture(model, replace(prompts, posterior=np.ones((2, 1)), outcome_ids=np.array([1])), ids, needs)
    rows = np.exp2(tunnel[needs[0]].astype(np.float64))
    assert rows.shape == (3, 2, 4, 6)
    assert np.nansum(rows, axis=-1) == pytest.approx(1, abs=1e-5)
    assert np.isnan(rows[:, 1]).sum(-1).tolist() == [[2] * 4] * 3
    assert np.array_equal(tunnel[needs[1]], tunnel[needs[3]])


@pytest.mark.slow
def test_memory_of_contrasts_grows_with_the_length_and_not_its_square():
    sizes = []
    for n in (256, 512):
        call = AttentionCall(0, *(torch.randn(1, 1, n, 4) for _ in range(3)), scaling=1.0)
        with torch.profiler.profile(profile_memory=True) as profile:
            contrast_rows(call, torch.arange(n)[None], block=8)
        sizes.append(max(e.cpu_memory_usage for e in profile.events()))
    assert sizes[1] < 3 * sizes[0]
