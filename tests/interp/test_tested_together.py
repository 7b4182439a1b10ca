"""p-values over the largest of several statistics."""

import numpy as np

from interp.tested_together import maximum_statistic_p


def test_the_observed_value_counts_among_the_permutations():
    permuted = np.array([[1.0, 5.0], [2.0, 0.0], [0.0, 1.0]])
    assert maximum_statistic_p(np.array([2.0, 6.0]), permuted).tolist() == [0.75, 0.25]


def test_undefined_statistics_take_part_in_no_maximum():
    p = maximum_statistic_p(np.array([2.0, np.nan]), np.array([[1.0, 9.0], [0.0, 9.0]]))
    assert p[0] == 1 / 3
    assert np.isnan(p[1])


def test_equal_up_to_rounding_counts_as_reached():
    assert maximum_statistic_p(np.array([0.3]), np.array([[0.1 + 0.2], [0.3 - 1e-16]])).tolist() == [1.0]


def test_any_of_many_dependent_statistics_is_called_at_the_nominal_rate():
    called = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((20, 5)) + rng.standard_normal((20, 1))
        signs = rng.choice([-1.0, 1.0], size=(99, 20))
        called += maximum_statistic_p(np.abs(x.mean(0)), np.abs(signs @ x / 20)).min() <= 0.05
    assert 7 <= called <= 35  # 20 ± 3.5 standard deviations of Binomial(400, 0.05)
