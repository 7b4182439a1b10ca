"""The recurrence task against every program and every noise sequence, and what the paper says of its evidence."""

from itertools import permutations, product

import numpy as np
import pytest
from interp.wind_tunnels.tasks.recurrence import Recurrence

from tests.wind_tunnels.enumeration import predictive


def every_sequence(task: Recurrence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, whether a program made them, and the weight of each way to come by them."""
    programs = []
    for a, b, start in product(range(task.p), repeat=3):
        values = [start]
        while len(values) < task.length:
            values.append((a * values[-1] + b) % task.p)
        labels = permutations(range(task.p)) if task.symbols == "fresh" else [range(task.p)]
        programs += [[label[x] for x in values] for label in labels]
    noise = list(product(range(task.p), repeat=task.length))
    values = np.array(programs + noise)
    is_program = np.arange(len(values)) < len(programs)
    weight = np.where(is_program, 0.5 / len(programs), 0.5 / len(noise))
    kept = task._is_kept()[tuple(values[:, :3].T)]
    return values[kept], is_program[kept], weight[kept]


@pytest.mark.parametrize(
    "task",
    [
        Recurrence(p=3, length=6),
        Recurrence(p=5, length=5),
        Recurrence(p=3, length=6, symbols="fresh"),
        Recurrence(p=5, length=5, symbols="fresh"),
        Recurrence(p=5, length=5, symbols="fixed"),
        Recurrence(p=5, length=5, prefixes="trained"),
        Recurrence(p=5, length=5, prefixes="held_out"),
    ],
    ids=str,
)
def test_answers_and_class_are_those_of_every_sequence_counted(task):
    values, is_program, weight = every_sequence(task)
    drawn = task.encode(values, is_program)
    np.testing.assert_allclose(drawn.posterior, predictive(drawn, weight), atol=1e-12)
    for k in range(task.n_positions):
        _, group = np.unique(drawn.tokens[:, : k + 1], axis=0, return_inverse=True)
        both, program = np.bincount(group, weight), np.bincount(group, weight * is_program)
        np.testing.assert_allclose(drawn.belief[:, k, 0], (program / both)[group], atol=1e-12)


def test_held_out_prefixes_are_no_trained_ones():
    trained, held_out = (Recurrence(p=7, prefixes=prefixes) for prefixes in ("trained", "held_out"))
    prefixes = [
        {tuple(x) for x in task.sample(np.random.default_rng(0), 3000).tokens[:, 1:4].tolist()}
        for task in (trained, held_out)
    ]
    assert not prefixes[0] & prefixes[1]
    assert len(prefixes[1]) / 343 == pytest.approx(0.2, abs=0.02)
