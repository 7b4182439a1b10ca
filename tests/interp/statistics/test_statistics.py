"""Correlations, permutations and resampling against scipy and against written-out definitions."""

import numpy as np
import pytest
from scipy import stats

from interp.statistics.correlation import (
    explained_by_groups,
    explained_by_number,
    midranks,
    rank_test,
    ranks_within,
    resampled_correlations,
    resampled_rank_correlations,
    unit_length,
)
from interp.statistics.intervals import FISHER, normal_interval
from interp.statistics.resampling import bootstrap_weights, shuffles


def test_rank_correlations_equal_scipy_and_p_counts_permutations() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, (4, 50)).astype(float), rng.integers(0, 9, 50)
    tested = rank_test(x, y, shuffles(np.arange(50), 20, rng))
    np.testing.assert_allclose(tested.rho, [stats.spearmanr(row, y)[0] for row in x])
    x = np.vstack([np.full(10, 3.3), np.arange(10.0)])
    tested = rank_test(x, np.arange(10), shuffles(np.arange(10), 19, np.random.default_rng(0)))
    assert np.isnan(tested.rho[0]) and np.isnan(tested.p[0])
    assert tested.rho[1] == pytest.approx(1) and tested.p[1] == pytest.approx(1 / 20)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 12)), rng.standard_normal(12)
    orders = shuffles(np.arange(12), 40, rng)
    largest = np.array([max(abs(stats.spearmanr(row, y[o])[0]) for row in x) for o in orders])
    expected = [(1 + (largest >= abs(stats.spearmanr(row, y)[0]) - 1e-12).sum()) / 41 for row in x]
    np.testing.assert_allclose(rank_test(x, y, orders).p, expected)


def test_shuffles_move_whole_trajectories_to_every_partner() -> None:
    units = np.random.default_rng(1).permutation(np.repeat(np.arange(24), [3, 2] * 12))
    units = units[np.argsort(units // 8, kind="stable")]
    for order in shuffles(units, 30, np.random.default_rng(0)):
        for unit in np.unique(units):
            source = order[units == unit]
            assert len(set(units[source])) == 1, "a trajectory was torn"
            assert (np.diff(source) > 0).all(), "a trajectory changed its order"
        assert sorted(order) == list(range(60))
    units = np.repeat(np.arange(3), 2)
    reached = {tuple(order[::2] // 2) for order in shuffles(units, 200, np.random.default_rng(0))}
    assert len(reached) == 6


def test_units_of_rare_sizes_receive_whole_units_of_sizes_next_to_theirs() -> None:
    sizes = [1] * 12 + [4, 5, 5, 6, 8, 9]
    units = np.repeat(np.arange(18), sizes)
    received = set()
    for order in shuffles(units, 60, np.random.default_rng(0)):
        assert sorted(order[:12]) == list(range(12)), "sizes with enough units exchange among themselves"
        for unit in range(12, 18):
            source = order[units == unit]
            (donor,) = set(units[source])
            own = np.flatnonzero(units == donor)
            assert (source == own[np.arange(sizes[unit]) % len(own)]).all(), "a unit is given over again, in its order"
            received.add((unit, donor))
    assert len(received) == 36


def test_permuting_trajectories_keeps_what_position_explains_in_the_null() -> None:
    """Entropy that is a function of position alone correlates with a position axis, and p says: nothing beyond it."""
    rng = np.random.default_rng(3)
    units, position = np.repeat(np.arange(40), 6), np.tile(np.arange(6.0), 40)
    x = (position + 0.1 * rng.standard_normal(240))[None]
    tested = rank_test(x, position, shuffles(units, 99, rng))
    assert tested.rho[0] > 0.9 and tested.p[0] == 1


def test_resampled_rank_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 12, 40), rng.standard_normal(40)
    weights = bootstrap_weights(np.arange(40), np.arange(40) // 8, 25, rng)
    found = resampled_rank_correlations(np.stack([x, -y]), y, weights)
    expected = [stats.spearmanr(np.repeat(x, w), np.repeat(y, w))[0] for w in weights]
    np.testing.assert_allclose(found, [expected, -np.ones(len(weights))])
    x, y = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]]), np.array([3.0, 4.0, 7.0, 5.0])
    found = resampled_rank_correlations(x, y, np.array([[2, 2, 0, 0], [4, 0, 0, 0], [1, 1, 1, 1]]))
    assert np.isnan(found).tolist() == [[True, True, False], [False, True, False]]
    np.testing.assert_allclose(found[:, 2], [stats.spearmanr(row, y)[0] for row in x])


def test_bootstrap_weights_keep_units_whole_and_ranks_are_scipys() -> None:
    units, strata = np.repeat(np.arange(12), 3), np.repeat(np.arange(12) % 3, 3)
    weights = bootstrap_weights(units, strata, 50, np.random.default_rng(5))
    assert (weights.reshape(50, 12, 3) == weights.reshape(50, 12, 3)[:, :, :1]).all()
    for stratum in range(3):
        assert (weights[:, strata == stratum].sum(axis=1) == 12).all()
    ranks = ranks_within(np.array([5.0, 1.0, 5.0, 2.0, 9.0]), np.array(["a", "a", "a", "b", "b"]))
    np.testing.assert_allclose(ranks, [0.5, -1.0, 0.5, -0.5, 0.5])
    rng = np.random.default_rng(12)
    unknown = np.array([[1.0, np.nan, 0.0], [2.0, 3.0, 2.0]])
    for values in (rng.integers(0, 6, (3, 4, 25)), rng.standard_normal(9), np.zeros((2, 1)), np.ones((2, 7)), unknown):
        np.testing.assert_array_equal(midranks(values), stats.rankdata(values, axis=-1))


def test_variance_explained_is_that_of_groups_or_of_a_number() -> None:
    y = np.array([1.0, 2.0, 3.0, 7.0, 8.0, 9.0])
    found = explained_by_groups(y, np.array(list("aaabbb")))
    assert found.share == pytest.approx(54 / 58) and found.chance == pytest.approx(1 / 5) and found.n_values == 2
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal(30), rng.standard_normal(30)
    assert explained_by_number(y, x).share == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    y, x = np.array([3.0, 1.0, 4.0, 1.0, 5.0]), np.array([2, 7, 1, 8, 2])
    number, groups = explained_by_number(y, x), explained_by_groups(y, x)
    assert (number.chance, number.n_values) == (1 / 4, 4) and (groups.chance, groups.n_values) == (3 / 4, 4)
    assert np.isnan(explained_by_number(np.ones(5), x).share) and np.isnan(explained_by_groups(np.ones(5), x).share)
    assert explained_by_number(y, np.ones(5)).share == 0


def test_resampled_correlations_of_what_is_constant_in_a_resample_are_undefined():
    rng = np.random.default_rng(5)
    x, y = rng.integers(1, 9, (6, 10)).astype(float), rng.integers(1, 9, 10).astype(float)
    x[:, :2], x[0] = 4.0, 2.0
    weights = np.array([[4, 4, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0], [4, 0, 4, 0, 0, 0, 0, 0, 0, 0]])
    found = resampled_correlations(x, y, weights)
    assert np.isnan(found[:, :2]).all() and np.isnan(found[0]).all()
    x, y = rng.standard_normal((6, 10)), np.append(rng.standard_normal(9), 0.0)
    mixed = rng.multinomial(10, np.full(10, 0.1), 12)
    for i, w in enumerate(mixed):
        expected = [np.corrcoef(np.repeat(row, w), np.repeat(y, w))[0, 1] for row in x]
        np.testing.assert_allclose(resampled_correlations(x, y, mixed)[:, i], expected, rtol=1e-6)


def test_correlations_of_resamples_are_weighted_on_their_own_scale():
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((3, 25)) * [[1.0], [1e-6], [1e6]] + [[0.0], [1.0], [5e6]], rng.standard_normal(25) + 40
    weights = bootstrap_weights(np.arange(25), np.zeros(25, dtype=np.int64), 30, rng)
    found = resampled_correlations(x, y, weights)
    for mine, one in zip(found, x, strict=True):
        expected = [np.corrcoef(np.repeat(one, w), np.repeat(y, w))[0, 1] for w in weights]
        np.testing.assert_allclose(mine, expected, rtol=1e-7)
    values = np.random.default_rng(2).standard_normal((3, 20))
    unit = unit_length(values)
    np.testing.assert_allclose([unit.sum(axis=1), np.square(unit).sum(axis=1)], [[0] * 3, [1] * 3], atol=1e-12)
    for scale in (1e-20, 1e20):
        np.testing.assert_allclose(unit_length(values * scale), unit, rtol=1e-9)
    assert not unit_length(1 + 1e-14 * values).any(), "rounding about a constant"


def test_normal_intervals_are_those_by_hand():
    z = np.array([0.1, 0.3, 0.5, 0.9])
    half = 1.959964 * np.sqrt(np.square(z - z.mean()).sum() / 3)
    low, high = normal_interval(0.4, np.append(np.tanh(z), [1.0, -1.0]), FISHER)  # those at a bound are left out
    assert np.arctanh([low, high]) == pytest.approx([np.arctanh(0.4) - half, np.arctanh(0.4) + half], rel=1e-6)
    assert normal_interval(0.4, np.array([0.2, 0.3]), FISHER) is not None
    for rho, replicates in ((1.0, z), (-1.0, z), (np.nan, z), (0.4, z[:1]), (0.4, np.full(5, 0.3))):
        assert normal_interval(rho, np.asarray(replicates), FISHER) is None
    assert normal_interval(5.0, np.array([1.0, 3.0])) == pytest.approx((5 - 1.959964 * 2**0.5, 5 + 1.959964 * 2**0.5))
    assert normal_interval(7.0, np.ones(5)) is None and normal_interval(7.0, np.ones(1)) is None
