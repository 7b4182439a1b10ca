"""The curve along entropy: its bins, and its statistics with prompts left out, by hand on a few points."""

from itertools import pairwise

import numpy as np
import pytest
from interp.probes.dynamics.entropy_order import EntropyOrder, ordered_statistics
from scipy import stats
from scipy.spatial.distance import pdist


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
