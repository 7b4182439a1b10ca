"""p-values over the largest of several statistics."""

import numpy as np

from interp.statistics.intervals import excess, maximum_statistic_p


def test_the_maximum_counts_the_observed_value_and_nothing_undefined():
    permuted = np.array([[1.0, 5.0], [2.0, 0.0], [0.0, 1.0]])
    assert maximum_statistic_p(np.array([2.0, 6.0]), permuted).tolist() == [0.75, 0.25]
    p = maximum_statistic_p(np.array([2.0, np.nan]), np.array([[1.0, 9.0], [0.0, 9.0]]))
    assert p[0] == 1 / 3
    assert np.isnan(p[1])
    assert maximum_statistic_p(np.array([0.3]), np.array([[0.1 + 0.2], [0.3 - 1e-16]])).tolist() == [1.0]


def test_excess_is_on_one_scale_and_zero_where_nothing_spreads():
    rng = np.random.default_rng(0)
    permuted = rng.standard_normal((99, 2)) * [1.0, 100.0] + [0.0, 50.0]
    observed, moved = excess(np.array([5.0, 60.0]), permuted)
    together = np.vstack([observed, moved])
    assert np.abs(together.mean(axis=0)).max() < 1e-12 and np.abs(together.std(axis=0) - 1).max() < 1e-12
    # unscaled, the loud statistic's permutations would hide what the quiet one found
    assert maximum_statistic_p(np.array([5.0, 60.0]), permuted)[0] == 1.0 - 1e-2 * (permuted.max(1) < 5).sum()
    assert maximum_statistic_p(observed, moved)[0] == 0.01
    observed, moved = excess(np.array([2.0, np.nan]), np.array([[2.0, 1.0], [2.0, 3.0]]))
    assert observed[0] == 0 and (moved[:, 0] == 0).all() and np.isnan(observed[1])
