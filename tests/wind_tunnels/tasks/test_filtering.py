"""What filters refuse and begin with, and the chains they are run on; `test_hmm.py` has their beliefs."""

import numpy as np
import pytest
from interp.wind_tunnels.tasks.filtering import draw_chains, filter_states, stationary


def random_process(rng: np.random.Generator, n: int, n_states: int, n_symbols: int):
    initial = rng.dirichlet(np.ones(n_states))
    transition = rng.dirichlet(np.ones(n_states), size=(n, n_states))
    return initial, transition, rng.dirichlet(np.ones(n_symbols), size=(n, n_states))


def test_impossible_symbols_are_refused_and_what_is_stationary_stays():
    emission = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="at step 1 a symbol comes that the parameters give no probability"):
        filter_states(np.array([0.5, 0.5]), np.full((1, 2, 2), 0.5), emission, np.array([[0, 1]]))
    circle = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(stationary(circle), np.full((1, 3), 1 / 3), atol=1e-15)
    transition = random_process(np.random.default_rng(3), 5, 4, 2)[1]
    settled = stationary(transition)
    np.testing.assert_allclose((settled[:, None] @ transition)[:, 0], settled, atol=1e-14)
    np.testing.assert_allclose(settled.sum(axis=1), 1.0, atol=1e-14)


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
