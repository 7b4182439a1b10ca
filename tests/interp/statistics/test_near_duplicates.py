"""Clusters by wording, on prompts whose templates, copies and documents are known."""

import numpy as np
import pytest

from interp.statistics.near_duplicates import THRESHOLD, in_order, linked

WORDS = 400


def independent(n: int, length: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.integers(0, WORDS, length) for _ in range(n)]


def copies(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Five near-copies each of 20 prompts: two words in twenty are others."""
    found = []
    for prompt in independent(20, 20, rng):
        for _ in range(5):
            copy = prompt.copy()
            copy[rng.choice(20, 2, replace=False)] = rng.integers(0, WORDS, 2)
            found.append(copy)
    return found, np.repeat(np.arange(20), 5)


def templates(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Twelve frames of nine to fourteen words with a slot of one to three words, filled six times."""
    found = []
    for frame in (rng.integers(0, WORDS, rng.integers(9, 15)) for _ in range(12)):
        at = rng.integers(2, len(frame) - 2)
        found += [np.r_[frame[:at], rng.integers(0, WORDS, rng.integers(1, 4)), frame[at:]] for _ in range(6)]
    return found, np.repeat(np.arange(12), 6)


def documents(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Eight documents, read up to ever later words."""
    found = [text[:n] for text in independent(8, 60, rng) for n in (20, 30, 45, 60)]
    return found, np.repeat(np.arange(8), 4)


def headers(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Five few-shot headers, each before ten questions, and one closing that all prompts have."""
    closing = rng.integers(0, WORDS, 6)
    found = [
        np.r_[header, question, closing] for header in independent(5, 40, rng) for question in independent(10, 8, rng)
    ]
    return found, np.repeat(np.arange(5), 10)


def alone(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Independent questions in one chat template: a frame of half of every prompt tells nobody apart."""
    before, after = rng.integers(0, WORDS, 12), rng.integers(0, WORDS, 5)
    return [np.r_[before, x, after] for x in independent(60, 15, rng)], np.arange(60)


def majority(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """One template that nearly all prompts fill, and three other texts."""
    frame = rng.integers(0, WORDS, 12)
    filled = [np.r_[frame[:6], rng.integers(0, WORDS, 2), frame[6:]] for _ in range(60)]
    return [*filled, *independent(3, 14, rng)], np.r_[np.zeros(60, dtype=int), 1:4]


@pytest.mark.parametrize("made", [copies, templates, documents, headers, alone, majority])
def test_prompts_that_share_their_wording_are_one_cluster_in_whatever_order(made) -> None:
    rng = np.random.default_rng(0)
    ids, truth = made(rng)
    order = rng.permutation(len(ids))
    found = linked([ids[i] for i in order])[THRESHOLD]
    np.testing.assert_array_equal(found, in_order(truth[order]))


def test_prompts_are_linked_down_to_the_threshold() -> None:
    ids = [np.array(x, dtype=int) for x in ([3], [3], [4], [3, 4], [3, 4], [])]
    np.testing.assert_array_equal(linked(ids)[THRESHOLD], [0, 0, 1, 2, 2, 3])
    ids, _ = copies(np.random.default_rng(1))
    assert len(np.unique(linked([*ids, *ids[:7]], [1.0])[1.0])) == len({tuple(x) for x in ids})
    assert len(np.unique(linked(ids, [0.01])[0.01])) < 20, "the lower the threshold, the more is linked"
