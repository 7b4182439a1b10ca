"""Mess3 against the matrices of its source and all paths of states; its beliefs; its symmetry."""

from itertools import permutations, product

import numpy as np
from interp.wind_tunnels.tasks.mess3 import RELABELLINGS, Mess3

# T^(o)[s, s'] = p(s', o | s) as the source prints them, for x = 0.05 and a = 0.85.
SOURCE = np.array(
    [
        [[0.765, 0.00375, 0.00375], [0.0425, 0.0675, 0.00375], [0.0425, 0.00375, 0.0675]],
        [[0.0675, 0.0425, 0.00375], [0.00375, 0.765, 0.00375], [0.00375, 0.0425, 0.0675]],
        [[0.0675, 0.00375, 0.0425], [0.00375, 0.0675, 0.0425], [0.00375, 0.00375, 0.765]],
    ]
)


def test_predictive_equals_the_products_of_the_source_for_every_sequence():
    task = Mess3(K=5)
    every = np.array(list(product(range(3), repeat=5)))
    sequences = task.encode(every)
    stationary = np.full(3, 1 / 3)

    def probability(symbols) -> float:
        weights = stationary
        for symbol in symbols:
            weights = weights @ SOURCE[symbol]
        return weights.sum()

    for row, symbols in enumerate(every.tolist()):
        for step in range(5):
            seen = symbols[:step]
            expected = [probability([*seen, symbol]) / probability(seen) for symbol in range(3)]
            np.testing.assert_allclose(sequences.posterior[row, step], expected, atol=1e-14)


def test_window_readers_and_orbits_follow_the_stationary_process():
    # From the stationary start a short past is answered as that past at the start of a sequence.
    every = np.array(list(product(range(3), repeat=5)))
    sequences = Mess3(K=5).encode(every)
    for window in (1, 2, 3):
        for step in range(window, 5):
            short = Mess3(K=window + 1).encode(every[:, step - window : step + 1])
            np.testing.assert_allclose(sequences.windows[window][:, step], short.posterior[:, -1], atol=1e-14)
    assert sorted(map(tuple, RELABELLINGS.tolist())) == list(permutations(range(3)))
    answers = Mess3().sample_orbits(np.random.default_rng(0), 12, 3).targets.reshape(4, 3, -1)
    assert (np.sort(answers, axis=1) == np.arange(3)[None, :, None]).all()


def test_tokens_are_a_start_and_the_symbols_and_each_is_the_answer_one_token_before_it():
    task = Mess3(K=7)
    sequences = task.sample(np.random.default_rng(0), 40)
    assert (task.vocab_size, task.n_positions) == (4, 7)
    assert (sequences.tokens[:, 0] == 3).all() and sequences.tokens[:, 1:].max() == 2
    assert sequences.scored.tolist() == list(range(7))
    np.testing.assert_array_equal(sequences.targets[:, :-1], sequences.tokens[:, 1:])
    assert (sequences.columns["evidence"] == np.arange(7)).all()
    np.testing.assert_allclose(sequences.posterior[:, 0], 1 / 3, atol=1e-15)
    assert sequences.slices == () and (sequences.domain == "mess3").all()


def test_beliefs_are_of_the_state_behind_the_last_symbol():
    task = Mess3()
    sequences = task.sample(np.random.default_rng(0), 300)
    np.testing.assert_allclose(sequences.belief @ task.transition @ task.emission, sequences.posterior, atol=1e-14)
    np.testing.assert_allclose(Mess3(K=2).encode(np.zeros((1, 2), int)).belief[0, :, 0], [1 / 3, 0.85], atol=1e-12)
