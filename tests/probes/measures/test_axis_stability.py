"""Ridge axes of subsets from inner products, against the centred fit of each subset on its own."""

import numpy as np
import pytest
from interp.probes.measures.axis_stability import subset_weights

from interp.statistics.ridge import ridge_coefficients


def world(n=60, d=90, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * np.geomspace(5, 0.05, d) + rng.standard_normal(d)
    return rows, rows @ rng.standard_normal(d) + rng.standard_normal(n)


def explicit(rows, label, penalty, subset):
    return ridge_coefficients(rows[subset] - rows[subset].mean(axis=0), label[subset] - label[subset].mean(), penalty)


@pytest.mark.parametrize("penalty", [1e-7, 1e-3, 0.1, 3.0, 1e5])
def test_weights_give_the_axis_of_every_subset(penalty):
    rows, label = world()
    rng = np.random.default_rng(1)
    subsets = [np.sort(rng.permutation(60)[:size]) for size in (30, 30, 29, 5)]
    weights = subset_weights(rows @ rows.T, label, penalty, subsets)
    for found, subset in zip(weights, subsets, strict=True):
        np.testing.assert_allclose(rows.T @ found, explicit(rows, label, penalty, subset), rtol=1e-6, atol=1e-12)
        assert found.sum() == pytest.approx(0, abs=1e-9 * np.abs(found).sum())
        assert not np.delete(found, subset).any()


def test_a_label_that_does_not_vary_has_no_axis():
    rows, _ = world()
    assert not subset_weights(rows @ rows.T, np.ones(60), 1.0, [np.arange(20)]).any()
