"""Stochastic matrices on a grid: exact rows, no entry below the floor, no outcome treated unlike another."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interp.wind_tunnels.tasks.probability_grid import ProbabilityGrid

PAPERS = ProbabilityGrid(step=0.01, floor=0.05)


@given(st.integers(2, 40), st.integers(0, 6), st.integers(2, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_rows_sum_to_exactly_one_and_no_entry_is_below_the_floor(n_steps, least, n_outcomes, seed):
    if least * n_outcomes > n_steps:
        return
    grid = ProbabilityGrid(step=1 / n_steps, floor=least / n_steps)
    assert not any(is_so for is_so, *_ in grid.conflicts(n_outcomes))
    steps = grid.draw(np.random.default_rng(seed), (4, 3, n_outcomes))
    assert (steps.sum(axis=2) == n_steps).all()
    assert steps.min() >= least
    assert 0 <= (steps - least).max() < grid.n_levels


@pytest.mark.parametrize(
    ("step", "floor", "n_outcomes"), [(0.1, 0.1, 3), (0.05, 0.05, 3), (0.25, 0.0, 4), (0.5, 0.5, 2), (0.1, 0.0, 2)]
)
def test_a_row_is_numbered_by_its_place_among_all_rows(step, floor, n_outcomes):
    grid = ProbabilityGrid(step, floor)
    levels = range(grid.least, grid.n_steps + 1)
    rows = [row for row in itertools.product(levels, repeat=n_outcomes) if sum(row) == grid.n_steps]
    assert grid.n_rows(n_outcomes) == len(rows)
    np.testing.assert_array_equal(grid.rank(np.array(rows)), np.arange(len(rows)))


class GivenRow:
    """Stands in for a generator whose Dirichlet draw is known."""

    def __init__(self, row):
        self.row = np.array(row)

    def dirichlet(self, alpha, size):
        return np.broadcast_to(self.row, (*size, len(self.row)))


@pytest.mark.parametrize(
    ("raw", "steps"),
    [
        ([0.504, 0.496], [50, 50]),  # rounding alone is exact
        ([0.3336, 0.3332, 0.3332], [33, 33, 34]),  # 33 + 33 + 33 lacks one: at the smallest, here a tie
        ([0.606, 0.157, 0.237], [60, 16, 24]),  # 61 + 16 + 24 has one too many: from the largest
        ([0.02, 0.98], [5, 95]),  # 0.05 / 1.03 would be 0.0485 without the second bound
        ([0.01, 0.012, 0.978], [5, 5, 90]),
    ],
)
def test_a_row_is_closed_at_its_smallest_or_largest_entry(raw, steps, without_type_checks):
    drawn = PAPERS.draw(GivenRow(raw), (1, 1, len(raw)))[0, 0].tolist()
    assert sorted(drawn) == sorted(steps)
    if len(set(steps)) == len(steps):
        assert drawn == steps


def test_ties_go_by_the_size_before_rounding(without_type_checks):
    assert PAPERS.draw(GivenRow([0.3334, 0.3331, 0.3335]), (1, 1, 3)).tolist() == [[[33, 34, 33]]]
    assert PAPERS.draw(GivenRow([0.3331, 0.3335, 0.3334]), (1, 1, 3)).tolist() == [[[34, 33, 33]]]


def test_every_relabelling_of_a_row_is_equally_likely():
    rows = ProbabilityGrid(step=0.1, floor=0.1).draw(np.random.default_rng(0), (30_000, 1, 3))[:, 0]
    counts = np.zeros((11, 11, 11))
    np.add.at(counts, tuple(rows.T), 1)
    for order in [(0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)]:
        other = counts.transpose(order)
        unequal = (counts + other > 20) & (counts != other)
        square = np.square(counts - other)[unequal] / (counts + other)[unequal]
        assert square.sum() < 2 * unequal.sum() + 10


def test_entries_are_even_but_for_the_share_that_stays():
    mean = PAPERS.probabilities(PAPERS.draw(np.random.default_rng(0), (4000, 5, 5))).mean(axis=(0, 1))
    np.testing.assert_allclose(mean, 0.2, atol=0.005)
    matrices = PAPERS.probabilities(PAPERS.draw(np.random.default_rng(0), (4000, 5, 5), stay=0.5)).mean(axis=0)
    assert np.diag(matrices) == pytest.approx(0.6, abs=0.03)
    assert (matrices.sum() - np.trace(matrices)) / 20 == pytest.approx(0.1, abs=0.01)
