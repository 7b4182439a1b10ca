"""Iterated permutations against a count over all permutations, and their symmetries."""

from itertools import permutations

import numpy as np
import pytest
from interp.wind_tunnels.tasks.permutation import IteratedPermutation, start_posterior


def counted(task: IteratedPermutation, tokens: np.ndarray, index: int) -> np.ndarray:
    """What is asked at a scored position, by trying every permutation; read off the tokens alone."""
    V, first = task.V, 2 * task.n_shown + 1
    every = np.array([*permutations(range(V))])
    agree = every[(every[:, tokens[0 : first - 1 : 2]] == tokens[1 : first - 1 : 2] - V).all(axis=1)]
    at = np.full(len(agree), tokens[first] - V)
    for step in range(index + 1):
        at = agree[np.arange(len(agree)), at]
        if task.scratchpad and step < index:  # what is written is known
            is_written = at == tokens[first + 1 + step] - V
            agree, at = agree[is_written], at[is_written]
    return np.bincount(at, minlength=V) / len(at)


@pytest.mark.parametrize("scratchpad", [True, False])
@pytest.mark.parametrize(("V", "n_shown"), [(5, 3), (4, 0), (5, 5), (5, 4), (6, 2)])
def test_posterior_counts_all_permutations_that_agree_with_what_is_shown(scratchpad, V, n_shown):
    task = IteratedPermutation(V=V, n_shown=n_shown, depth=5, scratchpad=scratchpad)
    drawn = task.sample(np.random.default_rng(V), 6)
    for tokens, claimed in zip(drawn.tokens, drawn.posterior, strict=True):
        for index in range(task.depth):
            np.testing.assert_allclose(claimed[index], counted(task, tokens, index), atol=1e-12)


def test_sequence_in_full():
    symbols, images = np.array([[2, 0, 1, 3]]), np.array([[0, 1, 3, 2]])  # 2→0→1→3→2
    written = IteratedPermutation(V=4, n_shown=3, depth=4).encode(symbols, images, np.array([0]))
    assert written.tokens.tolist() == [[2, 4, 0, 5, 1, 7, 8, 4, 5, 7, 6]]
    assert written.scored.tolist() == [7, 8, 9, 10]
    assert (written.targets - 4).tolist() == [[1, 3, 2, 0]]
    assert written.columns["is_way_shown"].tolist() == [[True, True, False, False]]
    assert written.columns["is_return"].tolist() == [[False, False, False, True]]
    assert written.columns["evidence"].tolist() == [[3, 4, 5, 6]]
    withheld = IteratedPermutation(V=4, n_shown=3, depth=4, scratchpad=False).encode(symbols, images, np.array([0]))
    assert withheld.tokens.tolist() == [[2, 4, 0, 5, 1, 7, 8, 4, 9, 10, 11]]
    assert withheld.columns["evidence"].tolist() == [[3, 3, 3, 3]]
    np.testing.assert_array_equal(withheld.targets, written.targets)
    np.testing.assert_array_equal(withheld.columns["n_steps_asked"], [[1, 2, 3, 4]])


def test_reader_of_the_start_is_the_mean_over_all_permutations():
    found = start_posterior(np.array([1]), 4, 6)[0]
    every, at = np.array([*permutations(range(4))]), np.ones(24, dtype=int)
    for after in found:
        at = every[np.arange(24), at]
        np.testing.assert_allclose(after, np.bincount(at, minlength=4) / 24, atol=1e-12)
    drawn = IteratedPermutation(V=4, n_shown=2, depth=6).sample(np.random.default_rng(0), 3)
    assert drawn.windows[0].shape == drawn.posterior.shape
