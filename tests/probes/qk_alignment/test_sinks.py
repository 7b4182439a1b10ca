"""Heads that match content beside a sink, planted in queries and keys: whole rows turn the sign, variants do not."""

import numpy as np
import pytest
import torch
from interp.probes.attention_entropy.probe import AttentionEntropy
from interp.probes.qk_alignment.probe import QKAlignment

from interp.hooks.pattern import AttentionCall
from interp.hooks.pattern_sites import NULL_SITES, KeyDonors, PatternReader
from interp.testing import Shape, synthetic_capture

SMALL = {"n_permutations": 199, "n_bootstrap": 99}
SEEDS = 8
N, N_LAYERS, N_HEADS, LENGTH, WIDTH = 60, 2, 4, 24, 32


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def last_queries(rng, keys, matches):
    """Queries of the last position: cosine .9 with one key where they match, with none otherwise."""
    q = unit(rng.standard_normal((N, N_HEADS, WIDTH)))
    if not matches:
        return q
    key = keys[np.arange(N), :, rng.integers(1, LENGTH, N)]  # [prompt, head, feature]
    across = unit(q - (q * key).sum(axis=-1, keepdims=True) * key)
    return 0.9 * key + np.sqrt(1 - 0.9**2) * across


def world(seed, matches):
    """Both probes on rows over keys of which the first is a sink; each prompt borrows the keys of the one before."""
    rng = np.random.default_rng(seed)
    probes = (QKAlignment(**SMALL, seed=seed), AttentionEntropy(**SMALL, positions="scored", seed=seed))
    sites = {need.site for probe in probes for need in probe.needs if need.described.source == "pattern"}
    rows = {site: [] for site in sites - {"pattern_log_weight"}}
    sink = unit(rng.standard_normal(WIDTH))
    for layer in range(N_LAYERS):
        keys = unit(rng.standard_normal((N, N_HEADS, LENGTH, WIDTH)))
        keys -= (keys @ sink)[..., None] * sink
        keys = unit(keys)
        keys[:, :, 0] = sink
        q = np.zeros_like(keys)
        q[:, :, -1] = 6 * last_queries(rng, keys, matches) + 5.7 * sink
        q, k = (torch.tensor(x, dtype=torch.float32) for x in (q, keys))
        donors, own = KeyDonors(), AttentionCall(layer, q, k, k, scaling=1.0)
        donors.begin(np.full(N, LENGTH), np.arange(N))
        readers = [PatternReader(call, torch.tensor([[LENGTH - 1]]), 0) for call in (own, donors.swapped(own))]
        for site, found in rows.items():
            found.append(readers[site in NULL_SITES].read(site)[:, 0].numpy())
    planted = {site: np.stack(found) for site, found in rows.items()}
    shape = Shape(N, n_layers=N_LAYERS, n_heads=N_HEADS)
    found = [probe.analyse(synthetic_capture(probe.needs, shape, planted=planted, seed=seed), {}) for probe in probes]
    return {**found[0].scalars, **found[1].scalars}, found


@pytest.fixture(scope="module")
def matching():
    return [world(seed, matches=True) for seed in range(SEEDS)]


def test_the_sink_is_as_large_as_planted_and_without_it_the_matching_stands(matching):
    assert np.mean([found["sink_mass"].value for found, _ in matching]) == pytest.approx(0.54, abs=0.03)
    for _, (aligned, entropy) in matching:
        assert aligned.headline[0] == "logit_no_first"
        assert entropy.headline == ("reduction_no_first", "correlation_no_first", "content_sharpening_no_first",
                                    "sink_mass")  # fmt: skip
        assert entropy.controls["content_sharpening_no_first"][0].words == "with the first position"
    for name in ("logit", "content_sharpening"):
        assert sum(found[name].standing() == "below" for found, _ in matching) >= 6
    for name in ("logit_no_first", "cosine_no_first", "content_sharpening_no_first"):
        assert sum(found[name].standing() == "above" for found, _ in matching) >= SEEDS - 1
    assert sum(found["matching_heads_no_first"].value == 8 for found, _ in matching) >= SEEDS - 1
    named = [aligned for _, (aligned, _) in matching if any("logit changes sign" in n for n in aligned.notes)]
    assert len(named) >= SEEDS - 1
