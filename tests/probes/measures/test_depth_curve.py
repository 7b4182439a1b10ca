"""Curves over depth: exact values, and heads dealt at random called at the nominal rate."""

import numpy as np
import pytest
from interp.probes.measures.depth_curve import DEPTH, deal_heads, depth_statistics


def named(curve):
    return dict(zip(DEPTH, depth_statistics(np.array(curve, dtype=float)), strict=True))


def test_a_straight_fall_has_the_values_of_its_formula():
    assert named([4, 3, 2, 1]) == pytest.approx(
        {"reduction": 0.75, "correlation": -1, "area": 2.5 / 4, "largest_drop": 1}
    )


def test_a_flat_curve_has_no_trend_and_the_area_of_its_first_layer():
    found = named([2, 2, 2])
    assert (found["reduction"], found["area"], found["largest_drop"]) == (0, 1, 0)
    assert np.isnan(found["correlation"])


def test_a_single_layer_has_no_depth():
    assert all(np.isnan(value) for value in named([3]).values())


def test_a_first_layer_without_entropy_leaves_ratios_undefined():
    found = named([0, 1, 2])
    assert np.isnan(found["reduction"]) and np.isnan(found["area"])
    assert found["correlation"] == pytest.approx(1)


def test_depth_statistics_of_a_batch_are_those_of_its_curves():
    curves = np.random.default_rng(0).uniform(1, 2, (5, 4))
    assert np.allclose(depth_statistics(curves), [depth_statistics(c) for c in curves], rtol=0, atol=1e-12)


def test_heads_that_differ_by_layer_stand_out_and_heads_that_do_not_are_called_at_the_nominal_rate():
    rng = np.random.default_rng(0)
    falling = np.linspace(4, 1, 6)[:, None] + 0.1 * rng.standard_normal((6, 8))
    found = deal_heads(falling, 499, rng)
    assert found.p[:2].max() <= 0.01 and found.layer_p[[0, -1]].max() <= 0.01
    called = np.zeros(len(DEPTH) + 1)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        noise = deal_heads(rng.uniform(1, 3, (5, 4)), 199, rng)
        called += [*(noise.p <= 0.05), noise.layer_p.min() <= 0.05]
    assert (called >= 5).all() and (called <= 27).all()  # 15 ± 3.3 standard deviations of Binomial(300, 0.05)


def test_ties_count_as_reached():
    """One head a layer, two layers: a dealing is the curve itself or its reverse."""
    found = deal_heads(np.array([[4.0], [1.0]]), 400, np.random.default_rng(0))
    assert found.values == pytest.approx([0.75, -1, 0.625, 3])
    as_it_is = np.isclose(found.dealt[:, 0], 0.75).mean()
    assert as_it_is == pytest.approx(0.5, abs=0.1) and np.isclose(found.dealt[:, 0], [[0.75], [-3]]).any(axis=0).all()
    reached = (1 + 400 * as_it_is) / 401
    assert found.p[:3] == pytest.approx([min(1, 2 * reached)] * 3) and found.p[3] == pytest.approx(reached)
    assert found.layer_p == pytest.approx([1, 1]), "both layers are as far from their mean in every dealing"


def test_the_layers_are_held_against_the_largest_distance_of_any():
    rng = np.random.default_rng(1)
    profile = rng.standard_normal((4, 3))
    profile[2] += 3
    found = deal_heads(profile, 199, np.random.default_rng(2))
    dealt = (
        np.random.default_rng(2).permuted(np.tile(profile.ravel(), (199, 1)), axis=1).reshape(199, 4, 3).mean(axis=2)
    )
    largest = np.abs(dealt - dealt.mean(axis=1, keepdims=True)).max(axis=1)
    distance = np.abs(profile.mean(axis=1) - profile.mean())
    np.testing.assert_allclose(found.layer_p, [(1 + (largest >= d - 1e-12).sum()) / 200 for d in distance])
