"""The matrices of cosines: pair by pair by brute force, and their null the same computation of random directions."""

import numpy as np
import pytest
from interp.probes.measures.token_cosines import TokenSets
from interp.probes.orthogonality.matrices import head_matrix, token_matrix


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
    from interp.statistics.cosines import expected_abs_cosine

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
