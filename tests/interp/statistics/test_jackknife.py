"""The downdate against refits, the group formula against the mean, and coverage over simulated worlds."""

import numpy as np
import pytest
from scipy import special, stats

from interp.statistics.jackknife import (
    deletions,
    equal_groups,
    influences,
    spectral_intervals,
    standard_error,
    without_each_group,
    without_each_row,
)
from interp.statistics.spectra import gram_statistics, scaled, smaller_gram
from tests.quick import quick


def value_of(rows: np.ndarray, scaling: str = "centred") -> np.ndarray:
    return gram_statistics(smaller_gram(scaled(rows, scaling)))


def refitted(rows: np.ndarray, scaling: str = "centred") -> np.ndarray:
    """The statistics without each row, by fitting again."""
    return np.array([value_of(np.delete(rows, i, axis=0), scaling) for i in range(len(rows))])


@pytest.mark.parametrize(("n", "d"), [(75, 1024), (40, 12), (5, 2), (4, 9), (30, 1), (300, 20)])
def test_downdating_equals_refitting_whatever_the_unit(n: int, d: int) -> None:
    rng = np.random.default_rng(n + d)
    rows = rng.standard_normal((n, d)) * rng.exponential(size=d) + 3
    for unit in (1, 1e-9, 1e9):
        np.testing.assert_allclose(without_each_row(unit * scaled(rows, "centred")), refitted(rows), rtol=1e-8)


def test_what_is_left_out_is_whole_and_equals_refitting() -> None:
    rows = np.vstack([np.eye(6), -np.eye(6), np.eye(6)[:2]])
    np.testing.assert_allclose(without_each_row(scaled(rows, "centred")), refitted(rows), rtol=1e-9)
    rows = np.zeros((5, 3))
    rows[2] = 1
    statistics = without_each_row(scaled(rows, "centred"))
    assert np.isnan(statistics[2]).all()
    np.testing.assert_allclose(np.delete(statistics, 2, axis=0), 1)
    rng = np.random.default_rng(6)
    rows, units = rng.standard_normal((202, 6)), np.repeat(np.arange(101), 2)
    deleted = deletions(rows, "centred", units)
    size, groups = equal_groups(101)
    assert (deleted.n_deleted, len(deleted.statistics)) == (size, len(groups)) == (3, 33)
    np.testing.assert_allclose(deleted.statistics, [value_of(rows[~np.isin(units, group)]) for group in groups])
    rng = np.random.default_rng(8)
    sizes = np.array([1, 2, 2, 3, 5, 8, 1, 4])
    rows, units = rng.standard_normal((26, 5)), np.repeat(np.arange(8), sizes)
    deleted = deletions(rows, "centred", units)
    np.testing.assert_allclose(deleted.statistics, [value_of(rows[units != unit]) for unit in range(8)])
    np.testing.assert_allclose(deleted.shares, sizes / 26)
    assert len(deletions(rows[:, :3], "zscored", units).statistics) == 8
    rows = np.random.default_rng(2).standard_normal((12, 5))
    np.testing.assert_allclose(deletions(rows, "zscored", np.arange(12)).statistics, refitted(rows, "zscored"))


@pytest.mark.parametrize("n_features", [3, 40])
def test_without_the_only_group_that_differs_the_statistics_are_undefined(n_features: int) -> None:
    rows = np.ones((12, n_features))
    rows[3:6] = np.random.default_rng(5).standard_normal((3, n_features))
    found = without_each_group(rows, "centred", np.repeat([0, 1, -1, 2], 3))
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    np.testing.assert_allclose(found[0], value_of(rows[3:]))


def test_influences_of_a_mean_are_those_of_the_means_of_clusters_by_their_sizes() -> None:
    rng = np.random.default_rng(9)
    sizes = np.array([1, 2, 6, 3, 8])
    values, units = rng.standard_normal(20), np.repeat(np.arange(5), sizes)
    left = np.array([values[units != unit].mean() for unit in range(5)])
    means = np.array([values[units == unit].mean() for unit in range(5)])
    expected = (means - means.mean()) / np.sqrt(5 * (20 / sizes - 1))
    np.testing.assert_allclose(influences(np.asarray(values.mean()), left, sizes / 20), expected)
    alone = np.array([np.delete(values, i).mean() for i in range(20)])
    error = np.linalg.norm(influences(np.asarray(values.mean()), alone, np.full(20, 1 / 20)))
    assert error == pytest.approx(standard_error(alone, 20, 1)) == pytest.approx(values.std(ddof=1) / 20**0.5)


SIZES = [[5] * 30, [1] * 10 + [2] * 10 + [15] * 10]


@pytest.mark.parametrize("sizes", quick(SIZES[1:], SIZES))
def test_intervals_of_clustered_clouds_cover_the_value_of_their_world(sizes) -> None:
    """The share of the first axis, of 30 clusters whose prompts resemble one another by .7; the truth by simulation."""
    units, deviation = np.repeat(np.arange(30), sizes), np.linspace(2.5, 0.5, 8)

    def cloud(rng: np.random.Generator) -> np.ndarray:
        between, within = rng.standard_normal((30, 8))[units], rng.standard_normal((len(units), 8))
        return (0.7**0.5 * between + 0.3**0.5 * within) * deviation

    truth = np.mean([value_of(cloud(np.random.default_rng([1, i])))[0] for i in range(500)])
    covered = 0
    for i in range(100):
        rows = cloud(np.random.default_rng([2, i]))
        low, high = spectral_intervals(value_of(rows), deletions(rows, "centred", units))[0]
        covered += low <= truth <= high
    assert covered >= 90


def test_intervals_are_t_times_the_error_and_undefined_at_a_bound() -> None:
    rows = np.random.default_rng(3).standard_normal((15, 4)) * [5, 1, 1, 1]
    value = value_of(rows)
    interval = spectral_intervals(value, deletions(rows, "centred", np.arange(15)))
    logits = special.logit(refitted(rows)[:, 0])
    error = np.sqrt(14 / 15 * np.square(logits - logits.mean()).sum())
    expected = special.expit(special.logit(value[0]) + np.array([-1, 1]) * stats.t.ppf(0.975, 14) * error)
    np.testing.assert_allclose(interval[0], expected)
    rows = np.outer(np.arange(8.0), np.ones(5))
    assert np.isnan(spectral_intervals(value_of(rows), deletions(rows, "centred", np.arange(8)))).all()
    error = standard_error(np.array([1.0, 2.0, 6.0]), 7, 2)
    assert error == pytest.approx(np.sqrt((7 - 2) ** 2 / (7 * 2 * 2) * 14))


@pytest.mark.parametrize(("n_units", "size"), [(75, 1), (100, 1), (101, 3), (150, 3), (151, 4), (500, 10)])
def test_prompts_are_left_out_alone_up_to_a_hundred_and_then_in_at_most_fifty_groups(n_units: int, size: int) -> None:
    found, groups = equal_groups(n_units)
    assert found == size and groups.shape == (n_units // size, size)
    if size > 1:
        assert (np.diff(groups, axis=1) == len(groups)).all(), "spread over the order of the units"
