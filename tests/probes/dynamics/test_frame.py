"""Distances of attention and of weights on matrices that a page can hold."""

import numpy as np
import pytest
from interp.probes.dynamics.frame import distance_squared, drift, of_another, product_of_random, row_distances, update

RNG = np.random.default_rng(0)


def weights(rng, n_layers=2, n_heads=4, n_kv=2):
    return {name: rng.standard_normal((n_layers, n, 6, 3)) for name, n in (("q", n_heads), ("k", n_kv), ("v", n_kv))}


def whole(w):
    """W_Q W_Kᵀ of every query head with the KV head it reads."""
    return np.array([
        [q @ k[head // 2].T for head, q in enumerate(of_layer)] for of_layer, k in zip(w["q"], w["k"], strict=True)
    ])  # fmt: skip


def test_two_rows_by_hand():
    # total variation ½ (¼ + ¼); H(⅝, ⅜) − ½ − ½ H(¾, ¼)
    def h(p):
        return -p * np.log2(p) - (1 - p) * np.log2(1 - p)

    tv, js = row_distances(np.log2([[0.5, 0.5]]), np.log2([[0.75, 0.25]]))
    assert tv == pytest.approx([0.25]) and js == pytest.approx([h(0.625) - 0.5 - h(0.75) / 2])


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


@pytest.mark.parametrize(
    ("shape", "units"),
    [
        ((1, 3, 1, 2), [0, 0, 0]),  # one sequence has no other
        ((1, 4, 1, 0), [0, 0, 1, 1]),  # no attention rows were kept
        ((1, 3, 1, 2), [0, 0, 1]),  # unlike lengths
    ],
)
def test_without_another_sequence_of_the_same_keys_there_are_no_other_rows(shape, units):
    assert of_another(np.zeros(shape), np.array(units)) is None
