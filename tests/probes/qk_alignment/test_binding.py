"""Binding on a few keys: shares of variance, renamings within sequences, and the jackknife over sequences."""

import numpy as np
import pytest
from interp.probes.qk_alignment.binding import BoundKeys, _renamed, mean_cosine, measure_binding
from scipy import stats


def made_up(n_sequences=6, n_pairs=4, n_keys=3, seed=0):
    rng = np.random.default_rng(seed)
    n = n_sequences * n_pairs
    bound = rng.integers(n_keys, size=n)
    bound[:n_keys] = np.arange(n_keys)
    keys = rng.standard_normal((2, n, 5)) + 2 + 1.5 * rng.standard_normal((2, n_keys, 5))[:, bound]
    return BoundKeys(keys, bound, np.repeat(np.arange(n_sequences) + 10, n_pairs), rng.random((2, n, 1)))


def explained(keys, groups):
    means = {g: keys[groups == g].mean(axis=0) for g in np.unique(groups)}
    between = sum(np.square(means[g] - keys.mean(axis=0)).sum() for g in groups)
    return between / np.square(keys - keys.mean(axis=0)).sum()


def test_the_interval_is_a_jackknife_over_sequences_on_the_logit_scale():
    bound = made_up()
    found = measure_binding(bound, 9, np.random.default_rng(1))
    assert found.n_groups == 6 == bound.n_sequences and bound.n_groups == 3

    def logit(x):
        return np.log(x / (1 - x))

    for layer in range(2):
        whole = explained(bound.keys[layer], bound.bound)
        assert found.explained[layer] == pytest.approx(whole)
        left = [bound.sequence != s for s in np.unique(bound.sequence)]
        replicates = logit(np.array([explained(bound.keys[layer, kept], bound.bound[kept]) for kept in left]))
        half = stats.t.ppf(0.975, 5) * np.sqrt(5 / 6 * np.square(replicates - replicates.mean()).sum())
        expected = stats.logistic.cdf(logit(whole) + np.array([-half, half]))
        np.testing.assert_allclose(found.interval[layer], expected)


def test_renaming_keeps_equal_tokens_equal_within_a_sequence_and_uses_the_same_names():
    bound = made_up(n_sequences=200, n_pairs=5)
    renamed = _renamed(bound, np.random.default_rng(2))
    maps = set()
    for s in np.unique(bound.sequence):
        mine = bound.sequence == s
        pairs = set(zip(bound.bound[mine].tolist(), renamed[mine].tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}), "one to one"
        maps |= pairs
    assert maps == {(a, b) for a in range(3) for b in range(3)}
    share = np.bincount(renamed, minlength=3) / len(renamed)
    np.testing.assert_allclose(share, 1 / 3, atol=0.06)


def test_p_is_by_the_largest_layer_of_each_renaming():
    bound = made_up(seed=3)
    found = measure_binding(bound, 60, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    renamed = [_renamed(bound, rng) for _ in range(60)]
    expected = np.array([[explained(bound.keys[layer], groups) for layer in range(2)] for groups in renamed])
    np.testing.assert_allclose(found.permuted, expected)
    reached = [(expected.max(axis=1) >= x - 1e-12).sum() for x in found.explained]
    np.testing.assert_allclose(found.p, (1 + np.array(reached)) / 61)
    for layer in range(2):
        means = np.array([bound.keys[layer, renamed[7] == g].mean(axis=0) for g in range(3)])
        assert found.permuted_cosine[7, layer] == pytest.approx(mean_cosine(means))


def test_the_mean_cosine_is_over_pairs_and_undefined_with_a_zero():
    assert mean_cosine(np.array([[1.0, 0], [1, 1], [0, -3]])) == pytest.approx((np.sqrt(0.5) + 0 + np.sqrt(0.5)) / 3)
    assert np.isnan(mean_cosine(np.array([[1.0, 0], [0, 0]])))
    assert made_up().random_cosine == pytest.approx(np.sqrt(2 / (np.pi * 5)))
