"""Ridge axes of subsets from inner products, against the centred fit of each subset on its own."""

import numpy as np
import pytest

from interp.statistics import kernel_ridge
from interp.statistics.kernel_ridge import subset_weights
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


def test_float32_and_refinement_reach_the_precision_of_float64():
    rows, label = world()
    products = rows @ rows.T
    subsets = [np.arange(30), np.arange(30, 60)]
    for share in (2e-5, 1e-3, 1.0):
        penalty = share * np.trace(products)
        found = kernel_ridge._refined(products, label, penalty, subsets)
        direct = np.array([kernel_ridge._direct(products, label, penalty, h) for h in subsets])
        assert found is not None
        assert np.abs(found - direct).max() < 1e-10 * np.abs(direct).max()


def test_float32_is_given_up_where_it_cannot_settle():
    rows, label = world(d=5)
    products, subset, penalty = rows @ rows.T, np.arange(50), 1e-9
    assert kernel_ridge._refined(products, label, penalty, [subset]) is None
    direct = kernel_ridge._direct(products, label, penalty, subset)
    np.testing.assert_array_equal(subset_weights(products, label, penalty, [subset]), [direct])


def test_a_label_that_does_not_vary_has_no_axis():
    rows, _ = world()
    assert not subset_weights(rows @ rows.T, np.ones(60), 1.0, [np.arange(20)]).any()
