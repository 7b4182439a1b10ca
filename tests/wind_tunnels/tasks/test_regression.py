"""In-context regression against enumeration over its grids, and against the continuous posterior it approaches."""

from itertools import product

import numpy as np
import pytest
from interp.wind_tunnels.tasks.regression import Regression
from scipy.stats import norm

from tests.wind_tunnels.enumeration import predictive

SMALLEST = [
    Regression(L=1, n_x=2, n_y=2, n_w=2),
    Regression(L=3, n_x=2, n_y=3, n_w=3, noise=0.5),
    Regression(L=3, n_x=3, n_y=2, n_w=4, noise=0.2, prior_sd=0.4, y_max=0.7),
]


def everything(task: Regression):
    """Every sequence of the task with its probability, from the definition of the process."""
    slopes = np.linspace(-3, 3, task.n_w) * task.prior_sd
    prior = norm.pdf(slopes, scale=task.prior_sd)
    inputs = np.linspace(-1, 1, task.n_x)
    edges = np.concatenate([[-np.inf], np.linspace(-task.y_max, task.y_max, task.n_y + 1)[1:-1], [np.inf]])
    choices = [range(task.n_w)] + [range(task.n_x)] * task.L + [range(task.n_y)] * task.L
    w, x, y = np.split(np.array([*product(*choices)]), [1, 1 + task.L], axis=1)
    below, above = (norm.cdf(edges[cell], slopes[w] * inputs[x], task.noise) for cell in (y, y + 1))
    return (w[:, 0], x, y), prior[w[:, 0]] * (above - below).prod(axis=1)


@pytest.mark.parametrize("task", SMALLEST, ids=str)
def test_posterior_and_belief_equal_enumeration(task):
    drawn, weight = everything(task)
    sequences = task.encode(*drawn)
    np.testing.assert_allclose(sequences.posterior, predictive(sequences, weight), atol=1e-12)
    w, x, y = drawn
    for index in range(task.L):
        shown = np.concatenate([x[:, :index], y[:, :index]], axis=1)
        _, group = np.unique(shown, axis=0, return_inverse=True)
        sums = np.zeros((group.max() + 1, task.n_w))
        np.add.at(sums, (group, w), weight)
        np.testing.assert_allclose(
            sequences.belief[:, index], (sums / sums.sum(axis=1, keepdims=True))[group], atol=1e-12
        )


def test_on_fine_grids_the_belief_is_the_textbook_posterior():
    task = Regression(L=8, n_x=9, n_y=400, n_w=601, noise=0.3, y_max=4.0)
    sequences = task.sample(np.random.default_rng(0), 40)
    x = task.inputs[sequences.tokens[:, 0::2]]
    centre = -4.0 + 8.0 * (sequences.targets - task.n_x + 0.5) / 400
    precision = 1.0 + np.cumsum(x**2, axis=1)[:, :-1] / 0.3**2
    mean = np.cumsum(x * centre, axis=1)[:, :-1] / 0.3**2 / precision
    inside = np.abs(mean) + 4 / np.sqrt(precision) < 3  # the grid of slopes ends at three prior deviations
    assert inside.sum() > 100
    found = sequences.columns["slope_mean"][:, 1:]
    assert np.abs(found - mean)[inside].max() < 0.01
    sd = sequences.columns["slope_sd"][:, 1:]
    assert np.abs(sd * np.sqrt(precision) - 1)[inside].max() < 0.01


def test_layout_is_in_turn():
    task = Regression(L=3, n_x=4, n_y=5, n_w=3)
    drawn = task.encode(np.array([2]), np.array([[3, 0, 1]]), np.array([[4, 1, 2]]))
    assert drawn.tokens.tolist() == [[3, 4 + 4, 0, 4 + 1, 1]]
    assert drawn.scored.tolist() == [0, 2, 4]
    assert drawn.targets.tolist() == [[8, 5, 6]]
    assert drawn.columns["slope"].tolist() == [[3.0, 3.0, 3.0]]
    np.testing.assert_allclose(drawn.columns["x"], [[1.0, -1.0, -1 / 3]])


def test_outputs_follow_the_slope_which_turns_with_either_mirror():
    columns, targets = (drawn := Regression(L=6).sample(np.random.default_rng(0), 300)).columns, drawn.targets
    assert np.corrcoef((columns["slope"] * columns["x"]).ravel(), targets.ravel())[0, 1] > 0.9
    slopes = Regression(L=6).sample_orbits(np.random.default_rng(0), 4, 9).columns["slope"][:, 0]
    np.testing.assert_allclose(slopes, slopes[0] * np.array([1, -1, -1, 1]))


def test_cells_are_exact_in_far_tails_and_out_of_reach():
    task = Regression(L=3, n_x=2, n_y=16, n_w=9, noise=0.01)
    sequences = task.sample(np.random.default_rng(0), 500)
    assert np.isfinite(sequences.posterior).all() and np.isfinite(sequences.belief).all()
    np.testing.assert_allclose(sequences.belief.sum(axis=2), 1.0, atol=1e-12)
    # A difference of two numbers near 1 would round to 0 from 8 deviations on, on one side only.
    masses = Regression(noise=0.1)._cell_masses
    np.testing.assert_allclose(masses[::-1, ::-1], masses, rtol=1e-9, atol=0)
    assert (masses < 1e-20).any()
