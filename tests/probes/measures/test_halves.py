"""Halves of the prompts, and shares of variance with their intervals, by hand."""

import numpy as np
import pytest
from interp.probes.measures.halves import exchanged_correlations, held_out_r2, r2_intervals, share_interval, split_rows

WEIGHTS = np.array([[1, 1, 1], [2, 1, 0], [0, 0, 3], [0, 3, 0]])


def test_the_interval_of_a_share_is_normal_on_the_scale_of_the_logarithm():
    errors, totals = np.array([1.0, 2.0, 0.5]), np.array([4.0, 5.0, 3.0])
    logs = np.log((WEIGHTS @ errors) / (WEIGHTS @ totals))
    half = 1.959964 * logs.std(ddof=1)
    expected = (1 - 3.5 / 12 * np.exp(half), 1 - 3.5 / 12 * np.exp(-half))
    assert share_interval(errors, totals, WEIGHTS) == pytest.approx(expected, rel=1e-6)


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


def test_intervals_of_many_predictions_are_those_of_each():
    rng = np.random.default_rng(0)
    truth, predicted = rng.standard_normal(12), rng.standard_normal((3, 12))
    weights = rng.multinomial(12, np.full(12, 1 / 12), 40)
    for found, one in zip(r2_intervals(truth, predicted, weights), predicted, strict=True):
        assert found == pytest.approx(share_interval(np.square(truth - one), np.square(truth), weights))


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


def test_r2_and_correlations_of_what_does_not_vary_are_undefined():
    truth = np.array([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    found = held_out_r2(truth, truth + np.array([[0.5, 1], [0, 1], [0, 1]]))
    assert found[0] == pytest.approx(1 - 0.25 / 6) and np.isnan(found[1])
    orders = np.array([[0, 1, 2], [2, 1, 0]])
    np.testing.assert_allclose(exchanged_correlations(truth[:, 0], -truth[:, 0], orders),
                               [-1, -1, np.corrcoef(truth[::-1, 0], -truth[:, 0])[0, 1]])  # fmt: skip
    assert np.isnan(exchanged_correlations(truth[:, 0], np.ones(3), orders)).all()
    assert np.isnan(exchanged_correlations(np.ones(3), truth[:, 0], orders)).all()
