"""Halves of the prompts: what is taken out, what is exchanged, shares of variance and their intervals, by hand."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.halves import HalfSplit, cloud_permutations
from sklearn.linear_model import LinearRegression

from interp.need import Need
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import (
    FISHER,
    PLAIN,
    UNEXPLAINED,
    chance_half_width,
    half_split_draws,
    half_split_interval,
)
from interp.statistics.resampling import split_rows
from interp.testing import Shape, synthetic_capture

WEIGHTS = np.array([[1, 1, 1], [2, 1, 0], [0, 0, 3], [0, 3, 0]])


def share_interval(errors, totals, weights=WEIGHTS, permuted=None):
    permuted = None if permuted is None else permuted[:, None]
    found = Estimates.shares(errors[:, None], totals[:, None], weights, permuted=permuted)
    return tuple(found.interval[:, 0])


def test_the_interval_of_a_share_is_normal_on_the_scale_of_the_logarithm():
    errors, totals = np.array([1.0, 2.0, 0.5]), np.array([4.0, 5.0, 3.0])
    logs = np.log((WEIGHTS @ errors) / (WEIGHTS @ totals))
    half = 1.959964 * logs.std(ddof=1)
    expected = (1 - 3.5 / 12 * np.exp(half), 1 - 3.5 / 12 * np.exp(-half))
    assert share_interval(errors, totals) == pytest.approx(expected, rel=1e-6)
    assert share_interval(errors, totals, permuted=np.array([-0.1, 0.0, 0.1])) == share_interval(errors, totals)
    permuted = np.array([-0.5, -0.1, 0.0, 0.1, 0.4, 1.0])  # nothing is left unexplained of the last
    chance = 1.959964 * np.std([np.log(1.5), np.log(1.1), 0, np.log(0.9), np.log(0.6)], ddof=1)
    expected = (1 - 3.5 / 12 * np.exp(2 * chance), 1 - 3.5 / 12 * np.exp(-2 * chance))
    assert chance_half_width(np.array([1.0, 1.0, 0.5])) == 0
    found = share_interval(errors, totals, permuted=1 - (1 - permuted) ** 2)  # twice as much on the scale
    assert 2 * chance > half and found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("errors, totals", [([1.0, 2.0, 0.0], [4.0, 5.0, 3.0]), ([1.0, 2.0, 0.5], [4.0, 5.0, 0.0])])
def test_resamples_without_an_error_or_without_variance_are_passed_over(errors, totals):
    """The third resample holds the third unit alone."""
    errors, totals = np.array(errors), np.array(totals)
    rest = WEIGHTS[[0, 1, 3]]
    logs = np.log((rest @ errors) / (rest @ totals))
    share, half = errors.sum() / totals.sum(), 1.959964 * logs.std(ddof=1)
    found = share_interval(errors, totals)
    assert found == pytest.approx((1 - share * np.exp(half), 1 - share * np.exp(-half)), rel=1e-6)


def test_there_is_no_interval_where_no_resample_differs():
    assert np.isnan(share_interval(np.ones(3), np.full(3, 2.0))).all()
    assert np.isnan(share_interval(np.zeros(3), np.ones(3))).all()
    assert np.isnan(share_interval(np.array([1.0, 2, 3]), np.ones(3), WEIGHTS[:1])).all()


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


N = 60


def drawn(seed=0, n_tokens=12):
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    return np.sort(order[:30]), np.sort(order[30:]), rng.integers(0, n_tokens, N), rng


def test_within_the_token_every_half_is_centred_by_itself_and_then_regressed_as_the_fitting_half_says():
    fitting, held_out, tokens, rng = drawn()
    values, nuisances = rng.standard_normal((N, 3)), rng.standard_normal((N, 2))
    half_split = HalfSplit.of(fitting, held_out, nuisances, tokens)
    kept = [rows[[np.sum(tokens[rows] == tokens[i]) > 1 for i in rows]] for rows in (fitting, held_out)]
    assert [list(half_split.fitting), list(half_split.held_out)] == [list(rows) for rows in kept]

    def centred(array, rows):
        return np.array([array[i] - array[rows][tokens[rows] == tokens[i]].mean(axis=0) for i in rows])

    x, y = centred(nuisances, kept[0]), centred(values, kept[0])
    slopes = LinearRegression(fit_intercept=False).fit(x, y)
    fitted, others = half_split.apply(values)
    assert fitted == pytest.approx(y - slopes.predict(x))
    assert others == pytest.approx(centred(values, kept[1]) - slopes.predict(centred(nuisances, kept[1])))
    assert half_split.n_free == len(kept[0]) - len(np.unique(tokens[kept[0]])) - 2


def test_prompts_are_exchanged_within_their_group_and_sequences_whole():
    needs = (Need("v"),)
    tokens = np.random.default_rng(0).integers(0, 4, 30)
    texts = Cloud.of(synthetic_capture(needs, Shape(n_prompts=30)), needs[0])
    orders = cloud_permutations(texts, tokens, 50, np.random.default_rng(1))
    assert (tokens[orders] == tokens).all() and (np.sort(orders, axis=1) == np.arange(30)).all()
    assert len(np.unique(orders[:, 0])) == (tokens == tokens[0]).sum()
    sequences = Cloud.of(synthetic_capture(needs, Shape(n_prompts=10, n_scored=3)), needs[0])
    orders = cloud_permutations(sequences, tokens, 20, np.random.default_rng(1))
    assert (np.diff(orders.reshape(20, 10, 3), axis=2) == 1).all()


def test_intervals_are_corrected_resampled_t_on_their_scales():
    values = np.random.default_rng(0).uniform(0.2, 0.5, 10)
    width = 2.2621572 * np.sqrt(1 / 10 + 1)
    assert half_split_interval(values) == pytest.approx(values.mean() + width * values.std(ddof=1) * np.array([-1, 1]))
    half = width * np.arctanh(values).std(ddof=1)
    assert half_split_interval(values, FISHER) == pytest.approx(
        np.tanh(np.arctanh(values.mean()) + half * np.array([-1, 1]))
    )
    half, share = width * np.log(1 - values).std(ddof=1), 1 - values.mean()
    assert half_split_interval(values, UNEXPLAINED) == pytest.approx(
        (1 - share * np.exp(half), 1 - share * np.exp(-half))
    )
    assert half_split_interval(values, UNEXPLAINED, half / 2) == half_split_interval(values, UNEXPLAINED)
    assert half_split_interval(values, UNEXPLAINED, 2 * half) == pytest.approx(
        (1 - share * np.exp(2 * half), 1 - share * np.exp(-2 * half))
    )
    for scale in (PLAIN, FISHER, UNEXPLAINED):
        assert half_split_interval(np.full(10, 0.25), scale) is None
    assert half_split_interval(np.r_[np.ones(5), values[:5]], UNEXPLAINED) is None
    assert half_split_interval(np.ones(10), FISHER) is None


def test_draws_of_half_splits_that_are_chance_alone_scatter_as_their_interval_says():
    rng = np.random.default_rng(4)
    values = 0.1 * rng.standard_normal((20, 3)) + [0.3, -0.1, 0.0]
    values[:, 2] = values[:, 0] - 0.7  # rises and falls with the first
    drawn = half_split_draws(values, 40_000, np.random.default_rng(5))
    for place in range(3):
        low, high = half_split_interval(values[:, place])
        assert np.quantile(drawn[:, place], [0.025, 0.975]) == pytest.approx(
            [(low - high) / 2, (high - low) / 2], rel=0.03
        )
    np.testing.assert_allclose(drawn[:, 2], drawn[:, 0], atol=1e-12)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) == pytest.approx(
        abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]), abs=0.02
    )


@pytest.mark.parametrize("place", [np.ones(20), np.full(20, 0.25), np.r_[np.nan, np.zeros(19)]])
def test_half_splits_without_scatter_have_none_by_chance(place):
    values = np.stack([place, np.random.default_rng(6).uniform(-0.5, 0.5, 20)], axis=1)
    drawn = half_split_draws(values, 99, np.random.default_rng(7), FISHER)
    assert np.abs(drawn[:, 0]).max() < 1e-12 and drawn[:, 1].all() and (np.abs(drawn) < 1).all()
