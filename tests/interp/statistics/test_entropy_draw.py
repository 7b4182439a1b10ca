"""The draw by fifths of the entropy."""

import numpy as np
import pytest

from interp.errors import PromptError
from interp.statistics.entropy_draw import entropy_quintiles


def test_draw_takes_equally_many_from_every_fifth() -> None:
    rng = np.random.default_rng(0)
    entropy = rng.exponential(size=1003)
    draw = entropy_quintiles(entropy, 15, rng)
    edges = np.quantile(entropy, [0, 0.2, 0.4, 0.6, 0.8, 1])
    assert np.histogram(entropy[draw.index], edges)[0].tolist() == [15] * 5
    assert np.bincount(draw.stratum[draw.index]).tolist() == [15] * 5
    assert (np.diff(draw.index) > 0).all() and draw.note == ""
    draw = entropy_quintiles(np.full(100, 2.0), 4, np.random.default_rng(0))
    assert np.bincount(draw.stratum).tolist() == [20] * 5 and len(draw.index) == 20
    draw = entropy_quintiles(np.arange(74.0), 15, np.random.default_rng(0))
    assert draw.index.tolist() == list(range(74))
    assert draw.note == "the pool has 74 prompts, fewer than 5 × 15: all of them are taken"


def test_draw_is_uniform_repeated_by_its_generator_and_never_of_nothing_or_of_what_is_not_finite() -> None:
    entropy = np.random.default_rng(1).random(200)
    first, again, other = (entropy_quintiles(entropy, 5, np.random.default_rng(s)).index for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    entropy = np.arange(50.0)
    counts = np.zeros(50)
    for seed in range(2000):
        counts[entropy_quintiles(entropy, 3, np.random.default_rng(seed)).index] += 1
    np.testing.assert_allclose(counts / 2000, 0.3, atol=0.05)
    for last, n, found in ((29.0, 0, "draws nothing"), (np.nan, 2, "1 of 30 entropies"), (np.inf, 2, "are not finite")):
        with pytest.raises(PromptError, match=found):
            entropy_quintiles(np.append(np.arange(29.0), last), n, np.random.default_rng(0))


def test_no_second_prompt_of_a_cluster_is_drawn_before_the_first_of_another() -> None:
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 12, 300)
    drawn = entropy_quintiles(rng.uniform(0, 8, 300), 20, np.random.default_rng(1), clusters)
    for fifth in range(5):
        mine = drawn.index[drawn.stratum[drawn.index] == fifth]
        pool = np.unique(clusters[drawn.stratum == fifth], return_counts=True)
        counts = np.array([np.count_nonzero(clusters[mine] == name) for name in pool[0]])
        assert counts.sum() == 20 and counts.max() - counts[counts < pool[1]].min(initial=counts.max()) <= 1
    alone = entropy_quintiles(np.arange(300.0), 20, np.random.default_rng(1), np.arange(300))
    plain = entropy_quintiles(np.arange(300.0), 20, np.random.default_rng(1))
    np.testing.assert_array_equal(alone.index, plain.index)
