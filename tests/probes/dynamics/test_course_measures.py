"""Courses of a training, distances of attention and weights, and the curve along entropy, on a handful of numbers."""

from itertools import pairwise

import numpy as np
import pytest
from interp.probes.dynamics.entropy_order import EntropyOrder, ordered_statistics
from interp.probes.dynamics.read import drift
from interp.probes.dynamics.training_curves import Curve, interval_of, settled, value_at
from scipy import stats
from scipy.spatial.distance import pdist

STEPS = np.array([0, 9, 99])
"""log(1 + step) is 0, 1 and 2 in units of log 10."""


def test_a_step_is_interpolated_on_the_scale_of_the_logarithm():
    curve = np.array([1.0, 0.6, 0.0])
    assert settled(STEPS, curve, 0.3) == pytest.approx(10**1.5 - 1)
    assert interval_of(STEPS, curve, 0.3) == (9, 99)
    assert value_at(STEPS, curve, np.array(10**1.25 - 1)) == pytest.approx(0.45)
    assert np.isnan(value_at(STEPS, curve, np.array(np.nan)))
    # what lies at ε has settled
    assert settled(STEPS, np.array([1.0, 0.3, 0.0]), 0.3) == pytest.approx(9)
    assert interval_of(STEPS, np.array([1.0, 0.3, 0.0]), 0.3) == (0, 9)
    assert settled(STEPS, np.array([1.0, 0.5, 0.3]), 0.3) == pytest.approx(99)
    assert np.isnan(settled(STEPS, np.array([1.0, 0.2, 0.31]), 0.3))
    assert np.isnan(settled(STEPS, np.array([1.0, np.nan, 0.0]), 0.3))
    assert np.isnan(settled(STEPS, np.array([0.0, 1.0, 0.0]), 0.3)), "it begins where it ends"
    assert settled(STEPS, np.array([1.0, -0.5, 0.0]), 0.3) > 9, "below its end it counts by its distance"
    assert interval_of(STEPS, np.array([1.0, 0.0, 0.5]), 0.3) is None


def test_two_courses_are_compared_on_every_resample_of_the_prompts():
    weights = np.array([[1, 1], [2, 0], [0, 2]])
    a, b = (
        Curve.of(np.array(rows, dtype=np.float64), weights, "x").distance
        for rows in ([[2, 1, 0], [2, 0, 0]], [[3, 3, 0], [5, 4, 0]])
    )
    np.testing.assert_array_equal(a, [[2, 0.5, 0], [2, 0.5, 0], [2, 1, 0], [2, 0, 0]])
    np.testing.assert_array_equal(b, [[4, 3.5, 0], [4, 3.5, 0], [3, 3, 0], [5, 4, 0]])
    at, index = settled(STEPS, b, 0.3), settled(STEPS, a, 0.3) / settled(STEPS, b, 0.3)
    # means (2, .5, 0) and (4, 3.5, 0): settled where log10(1 + step) is (1 − .3) / .75 and 1 + .575 / .875
    assert index[0] == pytest.approx((10 ** (0.7 / 0.75) - 1) / (10 ** (1 + 0.575 / 0.875) - 1))
    one_by_one = [float(settled(STEPS, one, 0.3) / settled(STEPS, other, 0.3)) for one, other in zip(a, b, strict=True)]
    np.testing.assert_allclose(index, one_by_one)
    left = [float(value_at(STEPS, one, np.asarray(when))) for one, when in zip(a, at, strict=True)]
    np.testing.assert_allclose(value_at(STEPS, a, at), left)


RNG = np.random.default_rng(0)


def weights(rng):
    return {name: rng.standard_normal((2, n, 6, 3)) for name, n in (("q", 4), ("k", 2))}


def whole(w):
    """W_Q W_Kᵀ of every query head with the KV head it reads."""
    return np.array([
        [q @ k[head // 2].T for head, q in enumerate(of_layer)] for of_layer, k in zip(w["q"], w["k"], strict=True)
    ])  # fmt: skip


def test_drift_is_that_of_the_written_out_products():
    before, now = weights(RNG), weights(RNG)
    a, b = whole(now), whole(before)
    cosine = np.einsum("lhij,lhij->lh", a, b) / np.sqrt(
        np.einsum("lhij,lhij->lh", a, a) * np.einsum("lhij,lhij->lh", b, b)
    )
    np.testing.assert_allclose(drift(now, before), 1 - cosine)


def test_from_nothing_there_is_no_drift():
    now = weights(RNG)
    before = {name: x * np.array([0.0, 1.0])[:, None, None, None] for name, x in now.items()}
    assert np.isnan(drift(now, before)).tolist() == [[True] * 4, [False] * 4]


@pytest.mark.parametrize(("n_units", "n_values", "n_bins"), [(12, 4, 4), (11, 4, 2), (60, 7, 7), (24, 24, 3)])
def test_values_are_bins_while_there_are_three_prompts_to_each(n_units, n_values, n_bins):
    order = EntropyOrder.of(np.arange(120) % n_values / 2, n_units)
    assert order.n_bins == n_bins
    if n_bins == n_values:
        assert order.bin.tolist() == (np.arange(120) % n_values).tolist()
    else:
        assert np.ptp(np.bincount(order.bin)) <= 1, "equal shares"


def test_the_certain_end_is_the_bins_up_to_a_fifth():
    assert EntropyOrder.of(np.repeat([0.0, 1.0, 2.0], [1, 2, 17]), 60).certain.tolist() == [0, 1, 2]
    assert EntropyOrder.of(np.repeat([0.0, 1.0, 2.0], [4, 8, 8]), 60).certain.tolist() == [0]
    assert EntropyOrder.of(np.repeat([0.0, 1.0, 2.0], [3, 8, 9]), 60).certain.tolist() == [0, 1]


def by_hand(points, bins, kept, means_of_all):
    """Length, relative length and low-entropy distance of some rows; an emptied bin keeps the mean of all rows."""
    means = [points[kept & (bins == b)].mean(axis=0) if (kept & (bins == b)).any() else m
             for b, m in enumerate(means_of_all)]  # fmt: skip
    length = sum(np.linalg.norm(b - a) for a, b in pairwise(means))
    rms = [np.sqrt(np.square(pdist(points[rows])).mean() / 2) for rows in (kept, kept & (bins == 0))]
    return np.array([length, length / rms[0], rms[1] / rms[0]])


def test_prompts_left_out_leave_single_rows_and_empty_bins():
    points = np.random.default_rng(0).standard_normal((9, 2))
    bins = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3])
    order = EntropyOrder(bins, 4, np.array([0]))
    means = [points[bins == b].mean(axis=0) for b in range(4)]
    found = ordered_statistics(points, order, np.arange(9), 3, 0)
    whole = by_hand(points, bins, np.ones(9, dtype=bool), means)
    np.testing.assert_allclose(found[:, 0], whole, rtol=1e-9)
    left_out = np.log([by_hand(points, bins, np.arange(9) != i, means) for i in range(9)])
    error = np.sqrt(8 / 9 * np.square(left_out - left_out.mean(axis=0)).sum(axis=0))
    half = stats.t.ppf(0.975, 8) * error
    np.testing.assert_allclose(found[:, 1:3].T, whole * np.exp([-half, half]), rtol=1e-9)


def test_the_null_is_of_entropies_exchanged_between_prompts():
    """Two prompts of two rows: an exchange leaves all as it is, or swaps them whole."""
    points = np.array([[0.0, 1.0], [4.0, 0.0], [1.0, 1.0], [9.0, 3.0]])
    bins = np.array([0, 1, 1, 2])
    worlds = []
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        means = [points[bins[order] == b].mean(axis=0) for b in range(3)]
        worlds.append(np.linalg.norm(means[1] - means[0]) + np.linalg.norm(means[2] - means[1]))
    found = ordered_statistics(points, EntropyOrder(bins, 3, np.array([0, 1])), np.array([0, 0, 1, 1]), 400, 0)[0]
    share = (found[3] - worlds[0]) / (worlds[1] - worlds[0])
    assert share == pytest.approx(0.5, abs=0.08)
    deviation = abs(worlds[1] - worlds[0]) * np.sqrt(share * (1 - share) * 400 / 399)
    half = stats.t.ppf(0.975, 399) * deviation * np.sqrt(1 + 1 / 400)
    np.testing.assert_allclose(found[4:], [found[3] - half, found[3] + half], rtol=1e-9)
