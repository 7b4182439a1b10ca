"""The bijection task against enumeration of every bijection, and its symmetries."""

from itertools import permutations

import numpy as np
import pytest
from interp.wind_tunnels.tasks.bijection import Bijection

from interp.tunnel import Sequences


def enumerated_posterior(task: Bijection, sequences: Sequences) -> np.ndarray:
    """Count, of all V! bijections that agree with the pairs in the tokens before, how many give each answer."""
    first_value = task.V if task.layout == "sepvocab" else 0
    every, posterior = np.array([*permutations(range(task.V))]), np.zeros(sequences.posterior.shape)
    for row, tokens in enumerate(sequences.tokens):
        for index, position in enumerate(sequences.scored):
            agree = every[(every[:, tokens[:position:2]] == tokens[1:position:2] - first_value).all(axis=1)]
            posterior[row, index] = np.bincount(agree[:, tokens[position]], minlength=task.V) / len(agree)
    return posterior


SMALLEST = [
    Bijection(V=2, L=2, replacement=False),
    Bijection(V=4, L=4, replacement=False),
    Bijection(V=3, L=6, replacement=True),
    Bijection(V=5, L=7, replacement=True),
    Bijection(V=4, L=5, replacement=True, key_pool=2),
    Bijection(V=4, L=4, replacement=False, layout="paired"),
    Bijection(V=4, L=6, replacement=True, layout="paired"),
]


@pytest.mark.parametrize("task", SMALLEST, ids=str)
def test_posterior_equals_enumeration_of_all_bijections(task):
    sequences = task.sample(np.random.default_rng(0), 60)
    np.testing.assert_allclose(sequences.posterior, enumerated_posterior(task, sequences), atol=1e-14)


def test_keys_entropy_and_curriculum_are_known():
    task = Bijection(V=8, L=5)
    keys, values = np.array([[3, 3, 1, 3, 1]]), np.array([[7, 7, 0, 7, 0]])
    columns = task.encode(keys, values).columns
    np.testing.assert_allclose(columns["bayes_entropy_bits"], [[3.0, 0.0, np.log2(7), 0.0, 0.0]], atol=1e-12)
    np.testing.assert_array_equal(columns["is_repeat"], [[False, True, False, True, True]])
    np.testing.assert_array_equal(columns["n_distinct"], [[0, 1, 1, 2, 2]])
    np.testing.assert_array_equal(columns["evidence"], [[0, 1, 2, 3, 4]])
    keys = Bijection(V=5, L=8).sample(np.random.default_rng(0), 5000).tokens[:, 0::2]
    frequency = np.bincount(keys.ravel(), minlength=5) / keys.size
    assert np.abs(frequency - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / keys.size)
    pooled = Bijection(V=5, L=8, key_pool=2).sample(np.random.default_rng(0), 500).tokens[:, 0::2]
    assert max(len(set(row)) for row in pooled.tolist()) == 2
    assert set(pooled.ravel().tolist()) == set(range(5))
    stages = Bijection(V=6, L=8).curriculum()
    assert [stage.key_pool for stage in stages] == [3, 4, 5, None]
    assert stages[-1] == Bijection(V=6, L=8)
    without = Bijection(V=6, L=6, replacement=False)
    assert without.curriculum() == (without,)


def test_layouts_show_values_after_keys_or_end_in_a_query():
    sequences = Bijection(V=5, L=3, replacement=False).encode(np.array([[4, 0, 2]]), np.array([[1, 3, 0]]))
    assert sequences.tokens.tolist() == [[4, 6, 0, 8, 2]]
    assert sequences.scored.tolist() == [0, 2, 4]
    assert sequences.targets.tolist() == [[6, 8, 5]]
    assert sequences.slice_ids.tolist() == [5, 6, 7, 8, 9]
    task = Bijection(V=5, L=3, replacement=False, layout="paired")
    sequences = task.encode(np.array([[4, 0, 2, 0]]), np.array([[1, 3, 0, 3]]))
    assert sequences.tokens.tolist() == [[4, 1, 0, 3, 2, 0, 0]]
    assert sequences.scored.tolist() == [0, 2, 4, 6]
    assert sequences.targets.tolist() == [[1, 3, 0, 3]]
    assert sequences.columns["bayes_entropy_bits"][0, -1] == 0.0
    drawn = task.sample(np.random.default_rng(0), 200)
    assert (drawn.tokens[:, -1:] == drawn.tokens[:, 0:-1:2]).any(axis=1).all()
