"""Flipping the signs of whole prompts, against every flip written out."""

from itertools import product

import numpy as np
import pytest
from interp.probes.measures.sign_flips import flip_p, flipped_means, gain, gain_estimates

from interp.statistics.resampling import random_signs
from interp.statistics.units import Units
from interp.table import Table

SIGNS = np.array(list(product((1.0, -1.0), repeat=4)))
"""All sixteen, so that p is exact."""


def test_signs_flip_gains_and_nothing_has_p_one():
    signs = random_signs(np.arange(3), 4000, np.random.default_rng(0))
    assert signs.shape == (4000, 3) and set(np.unique(signs)) == {-1.0, 1.0}
    assert np.abs(signs.mean(axis=0)).max() < 5 / np.sqrt(4000)
    assert np.abs(np.corrcoef(signs.T) - np.eye(3)).max() < 5 / np.sqrt(4000)
    gain = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan], [5.0, -4.0, np.nan]])
    found = flipped_means(gain, np.array([[1.0, 1, 1], [-1, 1, -1]]))
    np.testing.assert_allclose(found, [[3, -1, np.nan], [-1, 1, np.nan]])
    gain = np.array([[1.0, 0.0], [2.0, 0.0], [np.nan, 0.0], [4.0, 0.0]])
    found = flip_p(gain, SIGNS)
    assert found[1] == 1
    alone = flip_p(gain[[0, 1, 3], :1], SIGNS[:, [0, 1, 3]])
    assert found[0] == pytest.approx(alone[0]) == 5 / 17


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e4])
def test_p_is_by_the_largest_mean_in_units_of_its_spread(scale):
    gain = np.array([[1.0, 30.0], [2.0, -20.0], [0.5, 10.0], [3.0, 5.0]]) * [1.0, scale]
    mean, spread = np.abs(gain.mean(axis=0)), np.sqrt(np.square(gain).sum(axis=0)) / 4
    largest = [np.max(np.abs((signs[:, None] * gain).mean(axis=0)) / spread) for signs in SIGNS]
    expected = [(1 + sum(x >= m - 1e-9 for x in largest)) / 17 for m in mean / spread]
    np.testing.assert_allclose(flip_p(gain, SIGNS), expected)
    # all four of one sign: two of sixteen flips, it and its opposite, reach it
    assert flip_p(gain[:, :1], SIGNS) == pytest.approx([3 / 17])


@pytest.mark.parametrize(("cluster", "word"), [([0, 1, 2], "text"), ([0, 0, 2], "cluster"), ([5, 5, 5], "cluster")])
def test_methods_name_what_is_resampled(cluster, word):
    rows = Table({"prompt": np.arange(3), "cluster": np.array(cluster), "stratum": np.zeros(3, dtype=int)}, {
        "prompt": "index", "cluster": "index", "stratum": "index",
    })  # fmt: skip
    units = Units.of(rows, "text", 50, np.random.default_rng(0))
    signs = np.ones((9, 3))
    said = gain("bits", "a gain").scalar(gain_estimates(np.array([0.1, 0.2, 0.4]), units, signs))
    assert units.drawn == word and said.null is not None
    assert f"over {word}s" in said.interval_method and f"of each {word} with" in said.null.name


def test_a_gain_counts_the_prompts_and_clusters_that_have_one():
    rows = Table({"prompt": np.arange(60), "cluster": np.arange(60) // 2, "stratum": np.zeros(60, dtype=int)}, {
        "prompt": "index", "cluster": "index", "stratum": "index",
    })  # fmt: skip
    units = Units.of(rows, "text", 50, np.random.default_rng(0))
    values = np.where(np.arange(60) < 8, 1.0 + np.arange(60), np.nan)
    found = gain("bits", "a gain").scalar(gain_estimates(values, units, units.signs(99, np.random.default_rng(1))))
    assert (found.n, found.n_clusters, found.underpowered) == (8, 4, True)
