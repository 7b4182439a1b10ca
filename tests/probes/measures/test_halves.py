"""Halves of the prompts, and shares of variance with their intervals, by hand."""

import numpy as np
import pytest

from interp.statistics.intervals import chance_half_width, share_interval
from interp.statistics.resampling import split_rows

WEIGHTS = np.array([[1, 1, 1], [2, 1, 0], [0, 0, 3], [0, 3, 0]])


def test_the_interval_of_a_share_is_normal_on_the_scale_of_the_logarithm():
    errors, totals = np.array([1.0, 2.0, 0.5]), np.array([4.0, 5.0, 3.0])
    logs = np.log((WEIGHTS @ errors) / (WEIGHTS @ totals))
    half = 1.959964 * logs.std(ddof=1)
    expected = (1 - 3.5 / 12 * np.exp(half), 1 - 3.5 / 12 * np.exp(-half))
    assert share_interval(errors, totals, WEIGHTS) == pytest.approx(expected, rel=1e-6)
    assert share_interval(errors, totals, WEIGHTS, half / 2) == share_interval(errors, totals, WEIGHTS)
    exchanged = np.array([-0.5, -0.1, 0.0, 0.1, 0.4, 1.0])  # nothing is left unexplained of the last
    chance = 1.959964 * np.std([np.log(1.5), np.log(1.1), 0, np.log(0.9), np.log(0.6)], ddof=1)
    expected = (1 - 3.5 / 12 * np.exp(2 * chance), 1 - 3.5 / 12 * np.exp(-2 * chance))
    least = 2 * chance_half_width(exchanged)
    assert chance_half_width(np.array([1.0, 1.0, 0.5])) == 0
    assert least > half and share_interval(errors, totals, WEIGHTS, least) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("errors, totals", [([1.0, 2.0, 0.0], [4.0, 5.0, 3.0]), ([1.0, 2.0, 0.5], [4.0, 5.0, 0.0])])
def test_resamples_without_an_error_or_without_variance_are_passed_over(errors, totals):
    """The third resample holds the third unit alone."""
    errors, totals = np.array(errors), np.array(totals)
    rest = WEIGHTS[[0, 1, 3]]
    logs = np.log((rest @ errors) / (rest @ totals))
    share, half = errors.sum() / totals.sum(), 1.959964 * logs.std(ddof=1)
    found = share_interval(errors, totals, WEIGHTS)
    assert found == pytest.approx((1 - share * np.exp(half), 1 - share * np.exp(-half)), rel=1e-6)


def test_there_is_no_interval_where_no_resample_differs():
    assert share_interval(np.ones(3), np.full(3, 2.0), WEIGHTS) is None
    assert share_interval(np.zeros(3), np.ones(3), WEIGHTS) is None
    assert share_interval(np.array([1.0, 2, 3]), np.ones(3), WEIGHTS[:1]) is None


@pytest.mark.parametrize("n_units", [4, 7])
def test_halves_are_of_whole_units_and_the_first_is_the_larger(n_units):
    units = np.repeat(np.arange(n_units) * 3, 2)
    first, second = split_rows(units, np.random.default_rng(0))
    assert sorted([*first, *second]) == list(range(2 * n_units))
    assert len(set(units[first])) == -(-n_units // 2) and not set(units[first]) & set(units[second])
    often = np.zeros(n_units)
    for seed in range(300):
        often[np.unique(split_rows(units, np.random.default_rng(seed))[0][::2]) // 2] += 1
    np.testing.assert_allclose(often / 300, -(-n_units // 2) / n_units, atol=0.12)
