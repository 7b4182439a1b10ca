"""Cosines of keys, of W_K and between tokens of one position, against loops; chance by rotation."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.key_cosines import (
    _rotated_heads,
    centred_heads,
    column_measures,
    gaussian_references,
    head_keys,
)
from interp.probes.measures.token_cosines import TokenSets, token_cosines, token_measures
from interp.probes.orthogonality.probe import Orthogonality
from scipy import stats

from interp.need import Need
from interp.statistics.cosines import MEASURES, cosine_measures
from interp.statistics.estimates import Estimates
from interp.statistics.units import Units
from interp.testing import Shape, synthetic_capture

N = 30


def test_columns_are_the_vectors_of_a_projection():
    weights = np.random.default_rng(0).standard_normal((2, 3, 7, 4))
    found = column_measures(weights)
    for layer, head in np.ndindex(2, 3):
        np.testing.assert_allclose(found[layer, head], cosine_measures(weights[layer, head].T))


def test_keys_without_length_or_change_have_no_cosine():
    keys = np.random.default_rng(2).standard_normal((9, 3, 5)).astype(np.float32)
    keys[:, 1] = keys[0, 1] * (1 + 1e-7 * np.arange(9)[:, None])
    centred = centred_heads(keys)
    assert not centred[:, 1].any()
    np.testing.assert_allclose(centred[:, [0, 2]], (keys - keys.mean(axis=0))[:, [0, 2]], atol=1e-6)
    values = np.random.default_rng(6).standard_normal((1, N, 2, 4)).astype(np.float32)
    values[0, 7] = 0.0
    scalar = Orthogonality.quantities.scalar("head_keys", world(values, 2)[1]["abs"])
    rest = np.mean([cosine_measures(row)[0] for i, row in enumerate(values[0]) if i != 7])
    assert scalar.value == pytest.approx(rest, rel=1e-6) and scalar.interval is not None
    assert scalar.null is None and "without length" in scalar.null_reason


def world(values, n_heads, seed=0, n_null=19):
    """Head keys of planted values `[layer, row, head, feature]`."""
    shape = Shape(n_prompts=N, n_layers=len(values), n_kv_heads=n_heads, d_head=values.shape[-1])
    capture = synthetic_capture((Need("k"),), shape, planted={"k": values})
    cloud = Cloud.of(capture, Need("k"))
    units = Units.of(cloud.rows, "prompt", 50, np.random.default_rng(1))
    return head_keys(cloud, n_heads, units, n_null, seed)


def test_measures_are_means_over_rows_of_pairs_of_heads():
    values = np.random.default_rng(3).standard_normal((2, N, 3, 4)) + 0.3
    by_layer, over = world(values, 3)
    centred = values - values.mean(axis=1, keepdims=True)
    for layer in range(2):
        raw = np.mean([cosine_measures(row)[:2] for row in values[layer]], axis=0)
        left = np.mean([cosine_measures(row)[:2] for row in centred[layer]], axis=0)
        expected = dict(zip(MEASURES, [*raw, *left], strict=True))
        for measure in MEASURES:
            assert by_layer[measure].value[layer] == pytest.approx(expected[measure], rel=1e-6)
    for measure in MEASURES:
        mine, (low, high) = over[measure], tuple(over[measure].interval[:, 0])
        assert mine.value == pytest.approx(by_layer[measure].value.mean())
        assert low < mine.value[0] < high and np.isfinite(mine.null).all()


def test_chance_is_every_head_turned_by_a_rotation_of_its_own():
    rng = np.random.default_rng(4)
    keys = rng.standard_normal((2, 6, 3, 4)) * np.array([1.0, 50.0, 1e-3])[:, None] + 0.2
    turns = np.linalg.qr(rng.standard_normal((5, 3, 4, 4)))[0]
    found = _rotated_heads(keys, turns)
    centred = keys - keys.mean(axis=1, keepdims=True)
    for draw, layer in np.ndindex(5, 2):
        expected = []
        for x in (keys, centred):
            turned = np.einsum("rhi,hij->rhj", x[layer], turns[draw])
            expected += np.mean([cosine_measures(row)[:2] for row in turned], axis=0).tolist()
        np.testing.assert_allclose(found[draw, layer], expected, atol=1e-5)


POSITION = np.tile([5, 2, 9], 8)
"""Eight prompts of three rows each."""


def made_up(seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 4, 24) * 10
    tokens[POSITION == 9] = 10  # one position holds a single token, and has no pair
    return tokens, rng.standard_normal((24, 5)) + 0.5


def by_hand(vectors, tokens, kept):
    """The mean over positions with a pair of the measures of the mean vectors of their tokens."""
    found = []
    for position in np.unique(POSITION):
        mine = kept & (position == POSITION)
        means = [vectors[mine & (tokens == t)].mean(axis=0) for t in np.unique(tokens[mine])]
        found.append(cosine_measures(np.array(means)))
    return np.nanmean(found, axis=0)


def test_measures_are_means_over_positions_with_groups_of_prompts_left_out():
    tokens, vectors = made_up()
    units = np.repeat(np.arange(8), 3)
    sets = TokenSets.of(tokens, POSITION, 10, np.random.default_rng(0))
    assert sets.n_tokens == 4 and sets.position.tolist() == np.tile([1, 0, 2], 8).tolist()
    groups = [np.array([0, 4]), np.array([1, 5]), np.array([2, 6])]  # prompts 3 and 7 stay throughout
    value, replicates = token_measures(vectors, sets, groups, units)
    np.testing.assert_allclose(value, by_hand(vectors, tokens, np.ones(24, dtype=bool)))
    for group, found in zip(groups, replicates, strict=True):
        np.testing.assert_allclose(found, by_hand(vectors, tokens, ~np.isin(units, group)))


def test_measures_leave_out_prompts_tokens_and_pairs_that_are_not_there():
    tokens, vectors = made_up(1)
    tokens[:] = np.where(POSITION == 2, 10, np.repeat([0, 10, 20, 30, 0, 10, 20, 30], 3))
    units = np.repeat(np.arange(8), 3)
    sets = TokenSets.of(tokens, POSITION, 10, np.random.default_rng(0))
    value, (without,) = token_measures(vectors, sets, [np.array([3, 7])], units)
    kept = ~np.isin(units, [3, 7])
    np.testing.assert_allclose(value, by_hand(vectors, tokens, np.ones(24, dtype=bool)))
    np.testing.assert_allclose(without, by_hand(vectors, tokens, kept))
    sets = TokenSets.of(np.full(24, 3), POSITION, 10, np.random.default_rng(0))
    value, replicates = token_measures(made_up()[1], sets, [np.array([0])], np.repeat(np.arange(8), 3))
    assert np.isnan(value).all() and np.isnan(replicates).all()
    tokens = np.arange(24)
    sets = TokenSets.of(tokens, POSITION, 5, np.random.default_rng(0))
    assert sets.n_tokens == 5 == len(sets.row) and sorted(sets.token) == list(range(5))
    chosen = {tuple(TokenSets.of(tokens, POSITION, 5, np.random.default_rng(s)).row) for s in range(20)}
    assert len(chosen) > 15


@pytest.mark.parametrize("n_layers", [1, 2])
def test_scalars_have_the_jackknife_over_prompts_and_the_gaussian_null(n_layers):
    shape = Shape(n_prompts=12, n_scored=3, n_layers=n_layers, vocab_size=4)
    capture = synthetic_capture((Need("k_pre"),), shape)
    cloud = Cloud.of(capture, Need("k_pre"))
    tokens, positions = capture.rows["token"], capture.rows["position"]
    sets = TokenSets.of(tokens, positions, 10, np.random.default_rng(0))
    references = gaussian_references(sets.n_tokens, cloud.points.shape[2], 40, np.random.default_rng(1))
    found = token_cosines(cloud.points, cloud, sets, references)
    assert set(found) == set(MEASURES)
    for layer in range(n_layers):
        points = cloud.points[layer]
        groups = [np.array([unit]) for unit in range(12)]
        value, left_out = token_measures(points, sets, groups, cloud.units)
        error = np.sqrt(11 / 12 * np.square(left_out - left_out.mean(axis=0)).sum(axis=0)) * stats.t.ppf(0.975, 11)
        for i, measure in enumerate(MEASURES):
            scalar = Orthogonality.quantities.scalar("token_keys", found[measure], layer)
            assert scalar.value == pytest.approx(value[i])
            assert scalar.interval == pytest.approx((value[i] - error[i], value[i] + error[i]))
            compared = references[measure].compared(Estimates(np.full(n_layers, value[i])), 1)
            assert scalar.p == pytest.approx(compared.p[0])
            assert [scalar.null.value, *scalar.null.band] == pytest.approx(compared.null[:, 0])
            assert (scalar.n, scalar.n_unit, scalar.n_distinct_rows) == (12, "sequence", 4) and scalar.underpowered


def test_vectors_of_the_token_alone_have_no_interval():
    shape = Shape(n_prompts=12, n_scored=3, n_layers=1, vocab_size=4, n_kv_heads=1, d_head=5)
    capture = synthetic_capture((Need("k_pre"),), shape)
    cloud = Cloud.of(capture, Need("k_pre"))
    points = np.random.default_rng(2).standard_normal((4, 5))[capture.rows["token"]]
    sets = TokenSets.of(capture.rows["token"], np.zeros(36, dtype=np.int64), 10, np.random.default_rng(0))
    references = gaussian_references(4, 5, 40, np.random.default_rng(1))
    for found in token_cosines(points[None], cloud, sets, references).values():
        scalar = Orthogonality.quantities.scalar("token_keys", found)
        assert scalar.interval is None and "depend on the token alone" in scalar.interval_reason
        assert np.isfinite(scalar.value) and scalar.null is not None
