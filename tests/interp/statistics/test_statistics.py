"""Correlations, permutations, resampling and draws against scipy and against written-out definitions."""

import numpy as np
import pytest
from scipy import stats

from interp.errors import PromptError
from interp.statistics.correlation import (
    midranks,
    rank_test,
    ranks_within,
    resampled_correlations,
    resampled_rank_correlations,
    unit_length,
)
from interp.statistics.entropy_draw import entropy_quintiles
from interp.statistics.intervals import FISHER, band, normal_interval
from interp.statistics.resampling import bootstrap_weights, shuffles


def test_rank_correlations_equal_scipy_and_p_counts_permutations() -> None:
    x = np.vstack([np.full(10, 3.3), np.arange(10.0)])
    tested = rank_test(x, np.arange(10), shuffles(np.arange(10), 19, np.random.default_rng(0)))
    assert np.isnan(tested.rho[0]) and np.isnan(tested.p[0])
    assert tested.rho[1] == pytest.approx(1) and tested.p[1] == pytest.approx(1 / 20)
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 6, (3, 12)).astype(float), rng.integers(0, 9, 12)
    orders = shuffles(np.arange(12), 40, rng)
    largest = np.array([max(abs(stats.spearmanr(row, y[o])[0]) for row in x) for o in orders])
    expected = [(1 + (largest >= abs(stats.spearmanr(row, y)[0]) - 1e-12).sum()) / 41 for row in x]
    np.testing.assert_allclose(rank_test(x, y, orders).p, expected)
    np.testing.assert_allclose(rank_test(x, y, orders).rho, [stats.spearmanr(row, y)[0] for row in x])
    orders = shuffles(np.repeat(np.arange(7), [6, 1, 1, 1, 1, 1, 1]), 40, rng)  # a larger unit receives rows again
    ranks = [np.abs([np.corrcoef(stats.rankdata(row), stats.rankdata(y)[o])[0, 1] for row in x]) for o in orders]
    np.testing.assert_allclose(rank_test(x, y, orders).permuted, np.nan_to_num(ranks), atol=1e-12)


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
    counts = rng.multinomial(40, np.full(40, 1 / 40), size=25)
    found = resampled_rank_correlations(np.stack([x, -y]), y, counts * (40 / 37))
    expected = [stats.spearmanr(np.repeat(x, w), np.repeat(y, w))[0] for w in counts]
    np.testing.assert_allclose(found, [expected, -np.ones(len(counts))])
    x, y = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]]), np.array([3.0, 4.0, 7.0, 5.0])
    found = resampled_rank_correlations(x, y, np.array([[2, 2, 0, 0], [4, 0, 0, 0], [1, 1, 1, 1]]) * (4 / 3))
    assert np.isnan(found).tolist() == [[True, True, False], [False, True, False]]
    expected = [stats.spearmanr(row, y)[0] for row in x]
    x, y = np.random.default_rng(0).standard_normal((2, 1, 1000))
    of_one = np.eye(1000)[::50] * (1000 / 3)  # rounding leaves its mark on these weights
    assert np.isnan(resampled_rank_correlations(x, y[0], of_one)).all()
    np.testing.assert_allclose(found[:, 2], expected)


def test_bootstrap_weights_keep_units_whole_and_ranks_are_scipys() -> None:
    units, strata = np.repeat(np.arange(12), 3), np.repeat(np.arange(12) % 3, 3)
    weights = bootstrap_weights(units, strata, 50, np.random.default_rng(5))
    assert (weights.reshape(50, 12, 3) == weights.reshape(50, 12, 3)[:, :, :1]).all()
    for stratum in range(3):
        np.testing.assert_allclose(weights[:, strata == stratum].sum(axis=1), 12)
    ranks = ranks_within(np.array([5.0, 1.0, 5.0, 2.0, 9.0]), np.array(["a", "a", "a", "b", "b"]))
    np.testing.assert_allclose(ranks, [0.5, -1.0, 0.5, -0.5, 0.5])
    rng = np.random.default_rng(12)
    unknown = np.array([[1.0, np.nan, 0.0], [2.0, 3.0, 2.0]])
    for values in (rng.integers(0, 6, (3, 4, 25)), rng.standard_normal(9), np.zeros((2, 1)), np.ones((2, 7)), unknown):
        np.testing.assert_array_equal(midranks(values), stats.rankdata(values, axis=-1))


@pytest.mark.parametrize("sizes", [[1] * 20, [4] * 40, [8] * 8 + [1] * 32, [1, 1, 1]], ids=str)
def test_resamples_of_a_mean_reach_as_far_as_its_t_interval(sizes: list[int]) -> None:
    """Of the ratio estimator of a mean over clusters, and of independent rows in strata."""
    n, rng = len(sizes), np.random.default_rng(8)
    total = rng.standard_normal(n) * sizes
    weights = bootstrap_weights(np.repeat(np.arange(n), sizes), None, 6_000, rng)
    first = np.cumsum(sizes) - sizes
    residual = total - total.sum() / sum(sizes) * np.array(sizes)
    error = np.sqrt(n / (n - 1) * np.square(residual).sum()) / sum(sizes)
    t = stats.t.ppf(0.975, sum(sizes) ** 2 / np.square(sizes).sum() - 1)
    replicates = weights[:, first] @ residual / sum(sizes)
    least = 0.2 if n < 5 else 0.96  # of three units no resample can reach as far
    assert least < 1.96 * replicates.std() / (t * error) < 1.04
    values, strata = rng.standard_normal(60) + np.arange(60) // 20, np.arange(60) // 20
    means = bootstrap_weights(np.arange(60), strata, 6_000, rng) @ values / 60
    error = np.sqrt(np.square(values.reshape(3, 20).std(axis=1, ddof=1)).sum() / 20) / 3
    assert 1.96 * means.std() == pytest.approx(stats.t.ppf(0.975, 57) * error, rel=0.04)


@pytest.mark.parametrize("sizes", [[1] * 10, [1] * 20, [8] * 6 + [1] * 24], ids=str)
def test_intervals_of_a_mean_over_few_clusters_hold_it(sizes: list[int]) -> None:
    """Half of the variance is shared within clusters; of as many draws as clusters .10, .08 and .10 missed."""
    rng, code, n, missed = np.random.default_rng(9), np.repeat(np.arange(len(sizes)), sizes), 1000, 0
    for _ in range(n):
        values = rng.standard_normal(len(sizes))[code] + rng.standard_normal(len(code))
        low, high = band(bootstrap_weights(code, None, 400, rng) @ values / len(code))
        missed += not low <= 0 <= high
    assert 0.03 < missed / n < 0.07


def test_resampled_correlations_of_what_is_constant_in_a_resample_are_undefined():
    rng = np.random.default_rng(5)
    x, y = rng.integers(1, 9, (6, 10)).astype(float), rng.integers(1, 9, 10).astype(float)
    x[:, :2], x[0] = 4.0, 2.0
    weights = np.array([[4, 4, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 8, 0, 0, 0, 0, 0, 0], [4, 0, 4, 0, 0, 0, 0, 0, 0, 0]])
    weights = weights * (10 / 9)
    found = resampled_correlations(x, y, weights)
    assert np.isnan(found[:, :2]).all() and np.isnan(found[0]).all()
    x, y = rng.standard_normal((6, 10)), np.append(rng.standard_normal(9), 0.0)
    mixed = rng.multinomial(10, np.full(10, 0.1), 12)
    for i, w in enumerate(mixed):
        expected = [np.corrcoef(np.repeat(row, w), np.repeat(y, w))[0, 1] for row in x]
        np.testing.assert_allclose(resampled_correlations(x, y, mixed / 0.7)[:, i], expected, rtol=1e-6)


def test_correlations_of_resamples_are_weighted_on_their_own_scale():
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((3, 25)) * [[1.0], [1e-6], [1e6]] + [[0.0], [1.0], [5e6]], rng.standard_normal(25) + 40
    counts = rng.multinomial(25, np.full(25, 1 / 25), size=30)
    found = resampled_correlations(x, y, counts * (25 / 22))
    for mine, one in zip(found, x, strict=True):
        expected = [np.corrcoef(np.repeat(one, w), np.repeat(y, w))[0, 1] for w in counts]
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


def test_draw_takes_equally_many_from_every_fifth() -> None:
    rng = np.random.default_rng(0)
    entropy = rng.exponential(size=1003)
    draw = entropy_quintiles(entropy, 15, rng)
    edges = np.quantile(entropy, [0, 0.2, 0.4, 0.6, 0.8, 1])
    assert np.histogram(entropy[draw.index], edges)[0].tolist() == [15] * 5
    assert np.bincount(draw.stratum[draw.index]).tolist() == [15] * 5
    assert (np.diff(draw.index) > 0).all() and draw.note == ""
    draw = entropy_quintiles(np.full(100, 2.0), 4, np.random.default_rng(0))
    assert np.bincount(draw.stratum).tolist() == [20] * 5 and len(draw.index) == 20
    draw = entropy_quintiles(np.arange(74.0), 15, np.random.default_rng(0))
    assert draw.index.tolist() == list(range(74)) and not draw.stratum.any()  # its fifths are no design
    assert not entropy_quintiles(np.arange(75.0), 15, np.random.default_rng(0)).stratum.any()
    assert draw.note == "the pool has 74 prompts, fewer than 5 × 15: all of them are taken"


def test_draw_is_uniform_repeated_by_its_generator_and_never_of_nothing_or_of_what_is_not_finite() -> None:
    entropy = np.random.default_rng(1).random(200)
    first, again, other = (entropy_quintiles(entropy, 5, np.random.default_rng(s)).index for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    entropy = np.arange(50.0)
    counts = np.zeros(50)
    for seed in range(2000):
        counts[entropy_quintiles(entropy, 3, np.random.default_rng(seed)).index] += 1
    np.testing.assert_allclose(counts / 2000, 0.3, atol=0.05)
    for last, n, found in ((29.0, 0, "draws nothing"), (np.nan, 2, "1 of 30 entropies"), (np.inf, 2, "are not finite")):
        with pytest.raises(PromptError, match=found):
            entropy_quintiles(np.append(np.arange(29.0), last), n, np.random.default_rng(0))


def test_no_second_prompt_of_a_cluster_is_drawn_before_the_first_of_another() -> None:
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 12, 300)
    drawn = entropy_quintiles(rng.uniform(0, 8, 300), 20, np.random.default_rng(1), clusters)
    for fifth in range(5):
        mine = drawn.index[drawn.stratum[drawn.index] == fifth]
        pool = np.unique(clusters[drawn.stratum == fifth], return_counts=True)
        counts = np.array([np.count_nonzero(clusters[mine] == name) for name in pool[0]])
        assert counts.sum() == 20 and counts.max() - counts[counts < pool[1]].min(initial=counts.max()) <= 1
    alone = entropy_quintiles(np.arange(300.0), 20, np.random.default_rng(1), np.arange(300))
    plain = entropy_quintiles(np.arange(300.0), 20, np.random.default_rng(1))
    np.testing.assert_array_equal(alone.index, plain.index)
