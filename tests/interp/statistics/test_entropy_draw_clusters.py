"""The draw by entropy takes prompts of as many clusters as it can."""

import numpy as np

from interp.statistics.entropy_draw import entropy_quintiles


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
