"""The forward recursion against all paths of states, and the chains it is run on."""

import numpy as np
import pytest
from interp.wind_tunnels.tasks.filtering import WINDOWS, draw_chains, filter_states, filter_window, stationary

from tests.wind_tunnels.all_paths import by_all_paths


def random_process(rng: np.random.Generator, n: int, n_states: int, n_symbols: int):
    initial = rng.dirichlet(np.ones(n_states))
    transition = rng.dirichlet(np.ones(n_states), size=(n, n_states))
    return initial, transition, rng.dirichlet(np.ones(n_symbols), size=(n, n_states))


@pytest.mark.parametrize(("n_states", "n_symbols", "n_steps"), [(2, 2, 6), (3, 2, 6), (2, 4, 5), (4, 3, 4), (5, 5, 3)])
def test_beliefs_equal_the_sum_over_all_paths(n_states, n_symbols, n_steps):
    rng = np.random.default_rng(0)
    initial, transition, emission = random_process(rng, 3, n_states, n_symbols)
    symbols = rng.integers(n_symbols, size=(3, n_steps))
    filtered = filter_states(initial, transition, emission, symbols)
    for row, shown in enumerate(symbols.tolist()):
        process = initial, transition[row], emission[row]
        for step in range(n_steps):
            before = by_all_paths(*process, shown[:step])[1]
            np.testing.assert_allclose(filtered.symbol[row, step], before, atol=1e-14)
            after = by_all_paths(*process, shown[: step + 1])[0]
            np.testing.assert_allclose(filtered.after[row, step], after, atol=1e-14)
            moved = initial if step == 0 else filtered.after[row, step - 1] @ transition[row]
            np.testing.assert_allclose(filtered.before[row, step], moved, atol=1e-14)


def test_filters_keep_distributions_and_what_is_stationary():
    rng = np.random.default_rng(0)
    process = random_process(rng, 1, 5, 5)
    filtered = filter_states(*process, rng.integers(5, size=(2, 3000)))
    np.testing.assert_allclose(filtered.after.sum(axis=-1), 1.0, atol=1e-14)
    np.testing.assert_allclose(filtered.symbol.sum(axis=-1), 1.0, atol=1e-14)
    emission = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="at step 1 a symbol comes that the parameters give no probability"):
        filter_states(np.array([0.5, 0.5]), np.full((1, 2, 2), 0.5), emission, np.array([[0, 1]]))
    circle = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(stationary(circle), np.full((1, 3), 1 / 3), atol=1e-15)
    transition = random_process(np.random.default_rng(3), 5, 4, 2)[1]
    settled = stationary(transition)
    np.testing.assert_allclose((settled[:, None] @ transition)[:, 0], settled, atol=1e-14)
    np.testing.assert_allclose(settled.sum(axis=1), 1.0, atol=1e-14)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_reader_equals_the_sum_over_all_paths_of_the_last_symbols(window):
    rng = np.random.default_rng(1)
    initial, transition, emission = random_process(rng, 3, 3, 2)
    symbols = rng.integers(2, size=(3, 6))
    found = filter_window(initial, transition, emission, symbols, window)
    for row, shown in enumerate(symbols.tolist()):
        settled = np.linalg.matrix_power(transition[row], 500)[0]
        for step in range(6):
            first = max(0, step + 1 - window)
            process = (settled if first else initial), transition[row], emission[row]
            behind, to_come = by_all_paths(*process, shown[first : step + 1])
            np.testing.assert_allclose(found.after[row, step], behind, atol=1e-13)
            if step < 5:
                np.testing.assert_allclose(found.symbol[row, step + 1], to_come, atol=1e-13)
                np.testing.assert_allclose(found.before[row, step + 1], behind @ transition[row], atol=1e-13)
        np.testing.assert_allclose(found.before[row, 0], initial)
        np.testing.assert_allclose(found.symbol[row, 0], initial @ emission[row])


@pytest.mark.parametrize("n_own", [1, 20_000])
def test_chains_follow_their_parameters(n_own):
    rng = np.random.default_rng(0)
    initial, transition, emission = random_process(rng, 1, 3, 4)
    own = (np.repeat(matrix, n_own, axis=0) for matrix in (transition, emission))
    states, symbols = draw_chains(rng, initial, *own, (20_000, 3))
    joint = np.zeros((3, 3, 3, 4, 4, 4))
    np.add.at(joint, (*states.T, *symbols.T), 1)
    e, t = emission[0], transition[0]
    expected = 20_000 * np.einsum("a,ab,bc,ax,by,cz->abcxyz", initial, t, t, e, e, e)
    common = expected > 5
    square = np.square(joint - expected)[common] / expected[common]
    assert square.sum() < common.sum() + 5 * np.sqrt(2 * common.sum())
    assert joint[expected < 0.01].sum() < 20
