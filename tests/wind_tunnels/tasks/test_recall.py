"""Associative recall against enumeration of everything it can draw, its layouts, and its symmetries."""

from itertools import permutations, product

import numpy as np
import pytest
from interp.wind_tunnels.tasks.recall import FILLER, FIRST_KEY, PAD, QUERY, SEP, STORE, Recall

from tests.wind_tunnels.enumeration import predictive

SMALLEST = [
    Recall(n_pairs=1, n_keys=1, n_values=2, n_queries=1, score="all"),
    Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, score="all"),
    Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, noise=0.3, score="all"),
    Recall(n_pairs=2, n_keys=2, n_values=3, n_queries=2, noise=0.9),
    Recall(n_pairs=2, n_keys=3, n_values=2, n_queries=2, n_fillers=2, noise=0.2, layout="marked", score="all"),
    Recall(n_pairs=3, n_keys=3, n_values=3, n_queries=1, noise=2 / 3),
]


def everything(task: Recall):
    """Every sequence of the task with its probability, from the definition of the process."""
    keys, values, items, cues, weight = [], [], [], [], []
    for k in permutations(range(task.n_keys), task.n_pairs):
        for v in permutations(range(task.n_values), task.n_pairs):
            for i in product(range(task.n_pairs), repeat=task.n_queries):
                for c in product(range(task.n_keys), repeat=task.n_queries):
                    steps = [
                        1 - task.noise if cue == k[item] else task.noise / (task.n_keys - 1)
                        for item, cue in zip(i, c, strict=True)
                    ]
                    if np.prod(steps) > 0:
                        one = (k, v, i, c, np.prod(steps))
                        for drawn, part in zip((keys, values, items, cues, weight), one, strict=True):
                            drawn.append(part)
    return [np.array(drawn) for drawn in (keys, values, items, cues)], np.array(weight)


@pytest.mark.parametrize("task", SMALLEST, ids=str)
def test_posterior_equals_enumeration_of_all_sequences(task):
    drawn, weight = everything(task)
    sequences = task.encode(*drawn)
    np.testing.assert_allclose(sequences.posterior, predictive(sequences, weight), atol=1e-13)


def test_layouts_are_plain_or_marked_at_the_papers_sizes():
    task = Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, n_fillers=2)
    drawn = task.encode(np.array([[2, 0]]), np.array([[1, 2]]), np.array([[1, 0]]), np.array([[0, 2]]))
    key, value = FIRST_KEY, FIRST_KEY + 3
    assert drawn.tokens.tolist() == [[key + 2, value + 1, key, value + 2, FILLER, FILLER, key, FILLER, key + 2]]
    assert drawn.scored.tolist() == [6, 8]
    assert drawn.targets.tolist() == [[value + 2, value + 1]]
    task = Recall(n_pairs=2, n_keys=3, n_values=3, n_queries=2, layout="marked", score="all")
    drawn = task.encode(np.array([[2, 0]]), np.array([[1, 2]]), np.array([[1, 0]]), np.array([[0, 2]]))
    stored = [STORE, key + 2, SEP, value + 1, STORE, key, SEP, value + 2]
    assert drawn.tokens.tolist() == [[*stored, QUERY, key, PAD, QUERY, key + 2, PAD]]
    assert drawn.scored.tolist() == [2, 6, 9, 12]
    assert (drawn.tokens[:, drawn.scored[2:] + 1] == PAD).all()
    task = Recall(n_pairs=64, n_keys=256, n_values=256, n_queries=3, n_fillers=32, layout="marked", score="all")
    assert (task.n_positions, task.vocab_size) == (329, 522)
    assert task.sample(np.random.default_rng(0), 3).columns["bayes_entropy_bits"][0, 0] == 8.0


def test_cues_are_corrupted_as_the_channel_says_and_leave_doubt():
    task = Recall(n_pairs=1, n_keys=4, n_values=2, n_queries=1, noise=0.3)
    keys, _, _, cues = task._draw(np.random.default_rng(0), 30_000)
    moved = np.bincount(((cues - keys) % 4)[:, 0], minlength=4) / 30_000
    np.testing.assert_allclose(moved, [0.7, 0.1, 0.1, 0.1], atol=5 * np.sqrt(0.7 * 0.3 / 30_000))
    task = Recall(n_pairs=3, n_keys=5, n_values=4, n_queries=2, noise=0.4)
    drawn = task.encode(np.array([[0, 1, 2]]), np.array([[3, 0, 1]]), np.array([[1, 1]]), np.array([[1, 4]]))
    assert drawn.columns["is_stored"].tolist() == [[True, False]]
    assert drawn.columns["bayes_entropy_bits"][0, 1] == pytest.approx(np.log2(3))
    sequences = Recall(n_pairs=4, n_keys=9, n_values=8, score="all").sample(np.random.default_rng(0), 5)
    assert sequences.columns["evidence"][0].tolist() == [0, 1, 2, 3] + [4] * 8
