"""The hidden Markov task with parameters of its own: enumeration, what its past is worth, and refusals."""

import numpy as np
import pytest
from interp.wind_tunnels.tasks.hmm_fixed import FixedHMM

from interp.information import kl_bits
from tests.wind_tunnels.all_paths import by_all_paths


@pytest.mark.parametrize(
    "task", [FixedHMM(S=2, O=3, K=6), FixedHMM(S=4, O=2, K=4, stay=0.0, parameters_seed=3)], ids=str
)
def test_posteriors_equal_enumeration(task):
    sequences = task.sample(np.random.default_rng(0), 12)
    states, symbols = sequences.only("state"), sequences.only("symbol")
    process = np.full(task.S, 1 / task.S), task.transition, task.emission
    for row, tokens in enumerate(sequences.tokens.tolist()):
        shown = [token - 1 for token in tokens[1::2]]
        for step in range(task.K):
            to_come = by_all_paths(*process, shown[:step])[1]
            np.testing.assert_allclose(symbols.posterior[row, step], to_come, atol=1e-13)
            behind = by_all_paths(*process, shown[: step + 1])[0]
            np.testing.assert_allclose(states.posterior[row, step], behind, atol=1e-13)


def test_layout_has_no_header_and_parameters_belong_to_the_task():
    task = FixedHMM(S=3, O=4, K=6)
    sequences = task.sample(np.random.default_rng(0), 50)
    assert (task.vocab_size, task.n_positions) == (1 + 4 + 3, 12)
    assert (sequences.tokens[:, 0::2] == 0).all()
    assert set(sequences.tokens[:, 1::2].ravel().tolist()) == {1, 2, 3, 4}
    assert sequences.slices == ("state", "symbol")
    assert sequences.only("state").slice_ids.tolist() == [5, 6, 7]
    assert sequences.only("symbol").slice_ids.tolist() == [1, 2, 3, 4]
    assert sequences.scored.tolist() == list(range(12))
    task = FixedHMM()
    np.testing.assert_array_equal(task.transition, FixedHMM(K=50).transition)
    assert not np.array_equal(task.transition, FixedHMM(parameters_seed=7).transition)
    for matrix in (task.transition, task.emission):
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(matrix * 100, np.rint(matrix * 100), atol=1e-9)
        assert matrix.min() >= 0.05
    assert np.diag(task.transition).mean() > 0.5
    assert FixedHMM().lengthened(50) == FixedHMM(K=50)
    assert FixedHMM().lengthened(50).vocab_size == FixedHMM().vocab_size


def memoryless_gap(task: FixedHMM) -> float:
    """How far the stationary distribution and the last symbol alone are from the posterior over states, in bits."""
    sequences = task.sample(np.random.default_rng(0), 2000).only("state")
    values, vectors = np.linalg.eig(task.transition.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    guess = task.emission.T[sequences.tokens[:, 1::2] - 1] * stationary / stationary.sum()
    return float(kl_bits(sequences.posterior, guess / guess.sum(axis=-1, keepdims=True)).mean())


def test_the_default_process_needs_memory_and_its_windows_hold_it():
    assert memoryless_gap(FixedHMM()) == pytest.approx(0.149, abs=0.01)
    assert memoryless_gap(FixedHMM(stay=0.0, parameters_seed=0)) == pytest.approx(0.020, abs=0.004)
    gaps = [memoryless_gap(FixedHMM(parameters_seed=seed)) for seed in range(12)]
    assert np.argmax(gaps) == FixedHMM().parameters_seed
    sequences = FixedHMM().sample(np.random.default_rng(0), 2000).only("state")
    kl = [float(kl_bits(sequences.posterior, sequences.windows[w])[:, 1:].mean()) for w in (1, 2, 3)]
    assert kl[0] == pytest.approx(memoryless_gap(FixedHMM()), abs=0.01) and kl[0] > 2 * kl[1] > 4 * kl[2] > 0
