"""Attended against unattended keys, own keys against another prompt's, and the sites that carry them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.hooks.pattern import AttentionCall
from interp.hooks.pattern_sites import attended_keys, contrast_rows
from interp.need import Need
from interp.prompt import Clusters, PromptSet
from interp.reading.forward import capture
from tests.interp.hooks.test_attention import token_prompts
from tests.interp.hooks.test_pattern import all_positions, float64_pattern, random_call
from tests.tiny_models import tiny_model

NULLS = ("pattern_entropy_null", "pattern_max_null", "qk_cosine_null", "qk_logit_null", "pattern_entropy_no_first_null")


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
    both = (got.qk_cosine_no_first, got.qk_logit_no_first) if first else (got.qk_cosine, got.qk_logit)
    for item, head, row in np.ndindex(2, 4, 17):
        order = first + np.argsort(-a[item, head, row, first : row + 1])
        n = int(np.searchsorted(np.cumsum(a[item, head, row][order]), 0.5)) + 1
        if n > row - first:
            assert torch.isnan(both[0][item, head, row])
            continue
        for contrast, x in ((both[0], cosine), (both[1], dot * call.scaling / np.log(2))):
            x = x[item, head, row][order]
            assert contrast[item, head, row].item() == pytest.approx(x[:n].mean() - x[n:].mean(), abs=1e-4)


def test_a_row_over_one_key_has_no_contrast():
    got = contrast_rows(random_call(), torch.zeros(2, 1, dtype=torch.long))
    assert torch.isnan(got.qk_cosine).all() and torch.isnan(got.qk_logit).all()


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
        a = np.exp(s / np.sqrt(12))
        a /= a.sum(-1, keepdims=True)
        expected = -(a * np.log2(a)).sum(-1)
        assert np.abs(got[Need("pattern_entropy_null")][layer, borrower] - expected).max() < 1e-4
        rest = a[:, 1:] / a[:, 1:].sum(-1, keepdims=True)
        without = got[Need("pattern_entropy_no_first_null")][layer, borrower]
        assert np.abs(without + (rest * np.log2(rest)).sum(-1)).max() < 1e-4
        assert np.abs(got[Need("pattern_max_null")][layer, borrower] - a.max(-1)).max() < 1e-4


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
    tunnel = capture(model, replace(prompts, posterior=np.ones((2, 1))), ids, needs)
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
