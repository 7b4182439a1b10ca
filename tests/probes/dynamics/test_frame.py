"""Distances of attention and of weights on matrices that a page can hold."""

import numpy as np
import pytest
from interp.probes.dynamics.frame import distance_squared, drift, product_of_random, update

RNG = np.random.default_rng(0)


def weights(rng, n_layers=2, n_heads=4, n_kv=2):
    return {name: rng.standard_normal((n_layers, n, 6, 3)) for name, n in (("q", n_heads), ("k", n_kv), ("v", n_kv))}


def whole(w):
    """W_Q W_Kᵀ of every query head with the KV head it reads."""
    return np.array([
        [q @ k[head // 2].T for head, q in enumerate(of_layer)] for of_layer, k in zip(w["q"], w["k"], strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("r", [0.0, 0.3, 1.0, 2.0])
def test_a_product_of_factors_that_both_move_has_the_norm_of_three_orthogonal_terms(r):
    # (Q + rA)(K + rB)ᵀ − QKᵀ = r AKᵀ + r QBᵀ + r² ABᵀ, and (1 + r²)² − 1 = 2r² + r⁴
    assert product_of_random(np.array(r)) == pytest.approx(np.sqrt((1 + r**2) ** 2 - 1))


def test_updates_and_distances_are_those_of_the_written_out_products():
    before, now = weights(RNG), weights(RNG)
    a, b = whole(now), whole(before)
    np.testing.assert_allclose(distance_squared(now, before, "qk"), np.square(a - b).sum(axis=(1, 2, 3)))
    np.testing.assert_allclose(
        update(now, before, "qk"), np.sqrt(np.square(a - b).sum(axis=(1, 2, 3)) / np.square(b).sum(axis=(1, 2, 3)))
    )
    for name in ("q", "k", "v"):
        far, length = (np.square(x).sum(axis=(1, 2, 3)) for x in (now[name] - before[name], before[name]))
        np.testing.assert_allclose(distance_squared(now, before, name), far)
        np.testing.assert_allclose(update(now, before, name), np.sqrt(far / length))
    cosine = np.einsum("lhij,lhij->lh", a, b) / np.sqrt(
        np.einsum("lhij,lhij->lh", a, a) * np.einsum("lhij,lhij->lh", b, b)
    )
    np.testing.assert_allclose(drift(now, before), 1 - cosine)


def test_from_nothing_there_is_no_relative_update_and_no_drift():
    now = weights(RNG)
    before = {name: x * np.array([0.0, 1.0])[:, None, None, None] for name, x in now.items()}
    for name in ("qk", "q", "v"):
        assert np.isnan(update(now, before, name)).tolist() == [True, False]
    assert np.isnan(drift(now, before)).tolist() == [[True] * 4, [False] * 4]
