"""Cosines of keys and of W_K on small arrays: columns and not rows, heads without length, chance by rotation."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.key_cosines import (
    _rotated_heads,
    centred_heads,
    column_measures,
    head_keys,
    shuffled_columns,
)
from interp.probes.orthogonality.probe import Orthogonality

from interp.need import Need
from interp.statistics.cosines import MEASURES, cosine_measures
from interp.statistics.units import Units
from interp.testing import Shape, synthetic_capture

N = 30


def test_columns_are_the_vectors_of_a_projection():
    weights = np.random.default_rng(0).standard_normal((2, 3, 7, 4))
    found = column_measures(weights)
    for layer, head in np.ndindex(2, 3):
        np.testing.assert_allclose(found[layer, head], cosine_measures(weights[layer, head].T))
    signed = np.abs(weights) + 1
    shuffled = shuffled_columns(signed, np.random.default_rng(1))
    assert shuffled.shape == found.shape and not np.allclose(shuffled, column_measures(signed))
    steps = np.broadcast_to(np.arange(1.0, 5), (1, 1, 7, 4))  # every column is constant, no row is
    np.testing.assert_allclose(shuffled_columns(steps, np.random.default_rng(1)), column_measures(steps))
    # the entries of a column of equal ones can be put in no other order
    np.testing.assert_allclose(shuffled_columns(np.ones((1, 1, 7, 4)), np.random.default_rng(1))[0, 0, :2], [1, 1])


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
