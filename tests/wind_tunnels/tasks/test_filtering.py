"""What filters refuse and begin with; `test_hmm.py` has their beliefs, `test_task_conformance.py` their chains."""

import numpy as np
import pytest
from interp.wind_tunnels.tasks.filtering import filter_states, stationary


def test_impossible_symbols_are_refused_and_what_is_stationary_stays():
    emission = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    with pytest.raises(ValueError, match="at step 1 a symbol comes that the parameters give no probability"):
        filter_states(np.array([0.5, 0.5]), np.full((1, 2, 2), 0.5), emission, np.array([[0, 1]]))
    circle = np.roll(np.eye(3), 1, axis=1)[None]
    np.testing.assert_allclose(stationary(circle), np.full((1, 3), 1 / 3), atol=1e-15)
    transition = np.random.default_rng(3).dirichlet(np.ones(4), size=(5, 4))
    settled = stationary(transition)
    np.testing.assert_allclose((settled[:, None] @ transition)[:, 0], settled, atol=1e-14)
    np.testing.assert_allclose(settled.sum(axis=1), 1.0, atol=1e-14)
