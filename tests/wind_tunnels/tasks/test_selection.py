"""The selection task against a count over all permutations of each class."""

from itertools import permutations

import numpy as np
import pytest
from interp.wind_tunnels.tasks.selection import CLASSES, Selection


def power(f: tuple[int, ...], k: int) -> tuple[int, ...]:
    at = tuple(range(len(f)))
    for _ in range(k):
        at = tuple(f[x] for x in at)
    return at


def members(name: str, V: int) -> list[tuple[int, ...]]:
    """The class by its definition."""
    same = tuple(range(V))
    found = {
        "bijections": lambda f: True,
        "involutions": lambda f: power(f, 2) == same and not any(f[x] == x for x in same),
        "3-cycles": lambda f: power(f, 3) == same and not any(f[x] == x for x in same),
        "rotations": lambda f: len({(f[x] - x) % V for x in same}) == 1,
        "multiplications": lambda f: any(all(f[x] == c * x % V for x in same) for c in range(1, V)),
    }[name]
    return [f for f in permutations(same) if found(f)]


def counted(task: Selection, tokens: np.ndarray, position: int) -> np.ndarray:
    """Values and classes at a scored position, by trying every map of both classes."""
    tokens, position = tokens[1:], position - 1  # behind START
    pairs = list(zip(tokens[:position:2], tokens[1 : position + 1 : 2], strict=False))
    asked = np.zeros(task.V + 2)
    for index, name in enumerate((task.first, task.second)):
        maps = members(name, task.V)
        agreeing = [f for f in maps if all(f[x] == y for x, y in pairs)]
        if position % 2:
            asked[task.V + index] = len(agreeing) / len(maps)
        else:
            for f in agreeing:
                asked[f[tokens[position]]] += 1 / len(maps)
    return asked / asked.sum()


TASKS = [
    Selection(V=6, L=6),
    Selection("3-cycles", "bijections", V=6, L=5),
    Selection("involutions", "3-cycles", V=6, L=4),
    Selection("rotations", "bijections", V=5, L=4),
    Selection("multiplications", "rotations", V=5, L=5),
]


def test_an_orbit_shifts_keys_and_values_alike():
    shifted = Selection(V=6, L=6).sample_orbits(np.random.default_rng(0), 12, 3).tokens[:, 1:]  # after the start
    for first in range(0, 12, 3):
        moved = (shifted[first : first + 3] - shifted[first]) % 6
        assert (moved == np.array([[0], [2], [4]])).all()


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_posterior_counts_all_maps_that_agree_with_the_pairs(task):
    drawn = task.sample(np.random.default_rng(0), 8)
    for tokens, claimed in zip(drawn.tokens, drawn.posterior, strict=True):
        for index, position in enumerate(drawn.scored):
            np.testing.assert_allclose(claimed[index], counted(task, tokens, position), atol=1e-12)
    np.testing.assert_allclose(drawn.belief[:, 1::2], drawn.posterior[:, 1::2, task.V :])
    np.testing.assert_allclose(drawn.belief[:, 2::2], drawn.belief[:, 1::2])  # a key alone says nothing of the class


@pytest.mark.parametrize("name", CLASSES)
def test_draws_are_uniform_over_the_class(name):
    V = {"multiplications": 5}.get(name, 6)
    drawn = CLASSES[name].draw(np.random.default_rng(0), 60_000, V)
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert {tuple(f) for f in found.tolist()} == set(members(name, V))
    expected = 60_000 / len(found)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
