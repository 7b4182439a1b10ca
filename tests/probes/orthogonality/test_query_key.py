"""The null of W_QK against Gaussian projections drawn in full, and the statistics of a spectrum by hand."""

import numpy as np
import pytest
from interp.probes.orthogonality.query_key import SPECTRAL, QueryKey, product_singular_values, spectral

from interp.statistics.cosines import Reference
from interp.statistics.estimates import Estimates


def test_the_statistics_of_a_spectrum_by_hand():
    found = spectral(np.array([[2.0, 1.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    # shares ½, ¼, ¼ have 1½ bits; (Σσ²)² / Σσ⁴ = 36 / 18; 4 / 6
    np.testing.assert_allclose(found, [[2**1.5, 2, 2 / 3], [1, 1, 1], [np.nan] * 3])


@pytest.mark.parametrize(("d_model", "d_head"), [(4, 4), (9, 3)])
def test_the_null_is_that_of_gaussian_projections_drawn_in_full(d_model, d_head):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((1, 1, d_model, d_head))
    n = 3000
    null = spectral(QueryKey.of(weights, weights, n, rng).null)
    full = spectral(product_singular_values(*rng.standard_normal((2, n, d_model, d_head))))
    for i, name in enumerate(SPECTRAL):
        error = np.sqrt((null[:, i].var() + full[:, i].var()) / n)
        assert abs(null[:, i].mean() - full[:, i].mean()) < 4 * error, name
        assert null[:, i].std() == pytest.approx(full[:, i].std(), rel=0.1), name


def test_means_are_held_against_as_many_independent_heads_as_there_are_kv_heads():
    rng = np.random.default_rng(2)
    queries, keys = rng.standard_normal((3, 4, 8, 3)), rng.standard_normal((3, 2, 8, 3))
    found = QueryKey.of(queries, keys, 50, rng)
    for layer, head in np.ndindex(3, 4):
        whole = queries[layer, head] @ keys[layer, head // 2].T
        np.testing.assert_allclose(found.singular[layer, head], np.linalg.svd(whole, compute_uv=False)[:3])
    for i, name in enumerate(SPECTRAL):
        values, reference = spectral(found.singular)[..., i], Reference("", spectral(found.null)[:, i])
        by_layer, over = (means[f"w_qk_{name}"] for means in found.means())
        compared = reference.compared(Estimates(values.mean(keepdims=True).ravel()), 2 * 3)
        assert (over.value[0], over.p[0], over.about["n"]) == pytest.approx((values.mean(), compared.p[0], 12))
        np.testing.assert_allclose(over.null, compared.null)
        compared = reference.compared(Estimates(values.mean(axis=1)), 2)
        np.testing.assert_allclose(by_layer.value, compared.value)
        np.testing.assert_allclose(by_layer.p, compared.p)
        np.testing.assert_allclose(by_layer.null, compared.null)
    table = found.spectrum_table()
    shares = np.square(found.singular) / np.square(found.singular).sum(axis=-1, keepdims=True)
    mine = table.where(table["layer"] == 1)
    np.testing.assert_allclose(mine["share"], shares[1].mean(axis=0))
    np.testing.assert_allclose([mine["share_min"], mine["share_max"]], [shares[1].min(axis=0), shares[1].max(axis=0)])
    null = np.square(found.null) / np.square(found.null).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(mine["share_null"], null.mean(axis=0))
    np.testing.assert_allclose(mine["share_null_high"], np.quantile(null, 0.975, axis=0))
