"""Spectra of W_QK and matrices of cosines by brute force, and their nulls drawn in full."""

import numpy as np
import pytest
from interp.probes.measures.token_cosines import TokenSets
from interp.probes.orthogonality.matrices import head_matrix, token_matrix
from interp.probes.orthogonality.query_key import SPECTRAL, QueryKey, product_singular_values, spectral

from interp.statistics.cosines import Reference, expected_abs_cosine
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


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_tokens_are_compared_at_equal_positions_alone_by_brute_force():
    rng = np.random.default_rng(0)
    tokens, position = np.array([5, 5, 9, 9, 7, 5, 9]), np.array([0, 0, 0, 1, 1, 1, 2])
    keys = rng.standard_normal((7, 6))
    sets = TokenSets.of(tokens, position, 10, rng)
    table = token_matrix(keys, tokens, sets, 3, seed=1)
    found = {(t, o): c for t, o, c in zip(table["token"], table["other"], table["cos"], strict=True)}
    assert table["layer"].tolist() == [3] * 9 and set(found) == {(a, b) for a in (5, 7, 9) for b in (5, 7, 9)}
    five = (keys[0] + keys[1]) / 2  # two contexts of one token are averaged
    assert found[5, 9] == pytest.approx((cosine(five, keys[2]) + cosine(keys[5], keys[3])) / 2)
    assert found[5, 7] == pytest.approx(cosine(keys[5], keys[4])) == pytest.approx(found[7, 5])
    assert found[9, 9] == pytest.approx(1)


def test_cosines_are_of_what_shares_a_position_or_a_row():
    tokens = np.array([0, 1])
    sets = TokenSets.of(tokens, np.array([0, 1]), 10, np.random.default_rng(0))
    table = token_matrix(np.eye(2), tokens, sets, 0, seed=0)
    assert np.isnan(table["cos"][[1, 2]]).all() and table["cos"][[0, 3]] == pytest.approx(1)
    keys = np.random.default_rng(2).standard_normal((2, 5, 3, 4))
    keys[1, :, 2] = 0
    table = head_matrix(keys, seed=0)
    for i in range(table.n_rows):
        layer, head, other = (int(table[name][i]) for name in ("layer", "kv_head", "other"))
        pairs = zip(keys[layer, :, head], keys[layer, :, other], strict=True)
        wanted = 0 if layer == 1 and 2 in (head, other) else np.mean([cosine(a, b) for a, b in pairs])
        assert table["cos"][i] == pytest.approx(wanted)


def test_the_null_has_the_size_of_random_directions_and_repeats_with_its_seed():
    d = 64
    keys = np.broadcast_to(np.random.default_rng(3).standard_normal(d), (1, 20, 30, d))  # every head the same
    table = head_matrix(keys, seed=4)
    apart = table["kv_head"] != table["other"]
    assert table["cos"] == pytest.approx(1)
    assert np.abs(table["cos_null"][apart]).mean() == pytest.approx(expected_abs_cosine(d), abs=0.015)
    np.testing.assert_array_equal(head_matrix(keys, seed=4)["cos_null"], table["cos_null"])
    assert (head_matrix(keys, seed=5)["cos_null"] != table["cos_null"]).any()
    sets = TokenSets.of(np.arange(30), np.zeros(30, int), 30, np.random.default_rng(0))
    of_tokens = token_matrix(np.ones((30, d)), np.arange(30), sets, 0, seed=4)
    apart = of_tokens["token"] != of_tokens["other"]
    assert np.abs(of_tokens["cos_null"][apart]).mean() == pytest.approx(expected_abs_cosine(d), abs=0.015)
