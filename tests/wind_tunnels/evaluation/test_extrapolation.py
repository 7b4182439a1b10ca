"""Extrapolation in length: errors planted beyond the trained length are found there and nowhere else."""

import numpy as np
import pytest
from interp.wind_tunnels.evaluation.evaluation import extrapolate, longer
from interp.wind_tunnels.tasks.bijection import Bijection

from interp.errors import UsageError
from interp.information import kl_bits

TASK = Bijection(V=6, L=5)
LONG = Bijection(V=6, L=9)


def log_of(q: np.ndarray) -> np.ndarray:
    full = np.zeros((*q.shape[:2], TASK.vocab_size))
    full[..., TASK.V :] = q
    with np.errstate(divide="ignore"):
        return np.log(full)


def mixed(posterior: np.ndarray, doubt: np.ndarray) -> np.ndarray:
    """The posterior with a share `doubt` of the uniform answer at every scored position."""
    return (1 - doubt)[:, None] * posterior + doubt[:, None] / TASK.V


def test_error_beyond_the_trained_length_is_found_there():
    assert longer(TASK, 9) == LONG
    sequences = LONG.sample(np.random.default_rng(0), 800)
    doubt = np.array([0.01] * 5 + [0.5, 0.2, 0.2, 0.2])  # the network breaks one position beyond, then recovers
    q = mixed(sequences.posterior, doubt)
    found = extrapolate(log_of(q), sequences, TASK.n_positions, np.random.default_rng(1))
    curve = kl_bits(sequences.posterior, q).mean(axis=0)
    value = {name: figure.value for name, figure in found.figures.items()}
    assert value["kl_bits_within"] == pytest.approx(curve[:5].mean())
    assert value["kl_bits_beyond"] == pytest.approx(curve[5:].mean())
    assert value["kl_bits_jump"] == pytest.approx(curve[5] / curve[4]) and value["kl_bits_jump"] > 20
    np.testing.assert_allclose(found.by_position["kl_bits"], curve)
    uniform = kl_bits(sequences.posterior, np.full_like(q, 1 / 6)).mean(axis=0)[5:].mean()
    assert value["kl_bits_beyond_to_uniform"] == pytest.approx(curve[5:].mean() / uniform)
    for name, figure in found.figures.items():
        assert figure.low <= figure.value <= figure.high, name
    assert found.figures["kl_bits_within"].high < found.figures["kl_bits_beyond"].low


def test_beyond_training_knowing_nothing_is_a_ratio_of_one():
    sequences = LONG.sample(np.random.default_rng(0), 400)
    q = mixed(sequences.posterior, np.array([0.01] * 5 + [1.0] * 4))
    found = extrapolate(log_of(q), sequences, TASK.n_positions, np.random.default_rng(1)).figures
    assert found["kl_bits_beyond_to_uniform"].value == pytest.approx(1.0)
    with pytest.raises(UsageError) as refusal:
        longer(Bijection(V=4, L=4, replacement=False), 5)
    assert "L = 5 distinct keys out of 4" in str(refusal.value)
    sequences = LONG.sample(np.random.default_rng(0), 100)
    q = mixed(sequences.posterior, np.array([0.01] * 4 + [0.5] * 5))
    curve = kl_bits(sequences.posterior, q).mean(axis=0)
    found = extrapolate(log_of(q), sequences, 8, np.random.default_rng(1)).figures  # position 8 is the ninth token
    assert found["kl_bits_within"].value == pytest.approx(curve[:4].mean())
    assert found["kl_bits_jump"].value == pytest.approx(curve[4] / curve[3])


@pytest.mark.parametrize("n", [5, 3])
def test_length_that_is_no_longer_is_refused(n):
    with pytest.raises(UsageError) as refusal:
        longer(TASK, n)
    assert f"extrapolation of bijection to {n} observations" in str(refusal.value)
