"""Which prompts edits are tried on: as likely each as the other, and of as many clusters as there can be."""

import numpy as np
import pytest
from interp.probes.measures.harm import choose_prompts

from interp.need import Need
from interp.testing import Shape, synthetic_capture

NEED = (Need("next_kl"),)


def base(cluster):
    return synthetic_capture(NEED, Shape(len(cluster)), columns={"cluster": cluster})


@pytest.mark.parametrize(
    "cluster",
    [np.arange(200) // 5, np.arange(200) % 40, np.repeat(np.arange(45), np.r_[np.full(5, 24), np.full(40, 2)])],
    ids=["near-copies", "copies far apart", "unequal"],
)
def test_prompts_are_drawn_evenly_over_the_clusters(cluster):
    """Of every five prompts one is drawn: a cluster of five gives one, one of 24 gives four or five."""
    capture, times = base(cluster), np.zeros(len(cluster))
    n = len(cluster) // 5
    for seed in range(300):
        chosen = choose_prompts(capture, n, seed)
        assert len(chosen) == n and (np.diff(chosen) > 0).all()
        of_cluster = np.bincount(cluster[chosen], minlength=cluster.max() + 1)
        share = np.bincount(cluster) / 5
        assert (np.abs(of_cluster - share) < 1).all()
        times[chosen] += 1
    assert times.std() < 2 * np.sqrt(300 * 0.2 * 0.8) and times.min() > 25


def test_prompts_that_stand_by_themselves_are_drawn_at_random():
    chosen = choose_prompts(base(np.arange(100)), 30, 7)
    np.testing.assert_array_equal(chosen, np.sort(np.random.default_rng([7, 3]).choice(100, 30, replace=False)))
