"""Clouds of the smallest size, and the coordinates in which a layer is read."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.layers import Layer, Scale, at_same_layer, unit
from interp.probes.measures.maps import cloud_axes, null_points_table, points_table, snippets
from interp.probes.measures.sample_sizes import MIN_CLOUD

from interp.errors import ModelError, PromptError
from interp.need import Need
from interp.prompt import Prompt
from interp.table import Table
from interp.testing import Shape, synthetic_capture

V = Need("v")


def capture_of(n, **columns):
    return synthetic_capture((V,), Shape(n_prompts=n), columns=columns)


def test_three_prompts_are_a_cloud_and_two_are_none():
    cloud = Cloud.of(capture_of(3), V)
    assert cloud.n_units == MIN_CLOUD == 3 and cloud.points.shape == (3, 3, 16)
    with pytest.raises(PromptError, match="the geometry of 2 prompts"):
        Cloud.of(capture_of(2), V)
    with pytest.raises(PromptError, match="the geometry of 1 prompt:"):
        Cloud.of(capture_of(1), V)


@pytest.mark.parametrize(("n_clusters", "is_refused"), [(1, True), (2, True), (3, False), (40, False)])
def test_fewer_than_three_clusters_are_refused(n_clusters, is_refused):
    capture = capture_of(40, cluster=np.arange(40) % n_clusters)
    if is_refused:
        with pytest.raises(PromptError, match=f"40 prompts in {n_clusters} clusters?[\\s\\S]*of more clusters"):
            Cloud.of(capture, V)
    else:
        assert Cloud.of(capture, V).n_units == n_clusters


def test_entropies_that_are_not_finite_are_counted_and_none_at_all_is_no_fault():
    entropy = np.array([1.0, np.nan, 2.0, np.inf, 0.5])
    with pytest.raises(ModelError, match="entropies of synthetic: 2 of 5 numbers are not finite"):
        Cloud.of(capture_of(5, next_entropy_bits=entropy), V)
    capture = capture_of(5)
    rows = capture.rows
    names = [name for name in rows.columns if name != "next_entropy_bits"]
    bare = Table({n: rows[n] for n in names}, {n: rows.units[n] for n in names})
    assert Cloud.of(replace(capture, tables={**capture.tables, "scored": bare}), V).n_units == 5


def test_a_cloud_is_thinned_by_whole_prompts_and_to_one_row_of_each():
    capture = synthetic_capture((V,), Shape(n_prompts=12, n_scored=4))
    cloud = Cloud.of(capture, V)
    thin = cloud.thinned(18, np.random.default_rng(0))
    assert thin.rows.n_rows == 16 and (np.unique(thin.units, return_counts=True)[1] == 4).all()
    assert cloud.thinned(48, np.random.default_rng(0)) is cloud
    assert cloud.thinned(3, np.random.default_rng(0)).n_units == 3, "no cluster is as small: three are kept"
    one = cloud.one_of_each(cloud.prompts, np.random.default_rng(0))
    assert one.units.tolist() == list(range(12)) and one.one_row_each and not cloud.one_row_each
    assert one.one_of_each(one.prompts, np.random.default_rng(0)) is one
    places = np.array([cloud.one_of_each(cloud.prompts, np.random.default_rng(s)).rows["position"] for s in range(100)])
    np.testing.assert_allclose([(places == p).mean() for p in np.unique(cloud.rows["position"])], 0.25, atol=0.06)


def test_columns_are_divided_by_their_deviation_however_small():
    rows = np.random.default_rng(1).standard_normal((50, 4)) * [0.01, 1, 30, 0] + 7
    scale = Scale.of(rows, "zscored")
    np.testing.assert_allclose(scale.divisor, [*rows.std(axis=0)[:3], 1])
    applied = scale.apply(rows)
    np.testing.assert_allclose(applied.std(axis=0), [1, 1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(applied.mean(axis=0), 0, atol=1e-12)
    plain = Scale.of(rows, "centred")
    assert (plain.divisor == 1).all() and plain.sigma[3] == 0
    np.testing.assert_allclose(plain.apply(rows), rows - rows.mean(axis=0))
    w = np.array([0.5, -1.0, 2.0, 0.0])
    np.testing.assert_allclose(scale.readout(w), w / scale.divisor / np.linalg.norm(w / scale.divisor))
    np.testing.assert_allclose(scale.displacement(w), w * scale.divisor / np.linalg.norm(w * scale.divisor))
    # what is read off raw rows is the scaled coordinate, up to its unit
    assert np.corrcoef(rows @ scale.readout(w), applied @ w)[0, 1] == pytest.approx(1)


def test_zeros_have_no_direction():
    assert not unit(np.zeros(3)).any()
    assert unit(np.array([0.0, 1e-9, 0.0])).tolist() == [0, 1, 0]


def test_the_residual_stream_is_read_after_its_layer():
    def places(*named):
        scale = Scale.of(np.eye(3), "centred")
        return [Layer(site, layer, np.eye(3), scale, 3) for site, layer in named]

    found = places(("v", 0), ("v", 1), ("z", 0), ("z", 1), ("resid", 0), ("resid", 1), ("resid", 2))
    assert at_same_layer(found, 1) == [3, 6], "after the block"
    assert at_same_layer(found, 6) == [1, 3] and at_same_layer(found, 5) == [0, 2] == at_same_layer(found, 4)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_points_lie_on_the_principal_axes_of_their_own_layer(n_layers):
    capture = synthetic_capture((V,), Shape(n_prompts=20, n_layers=n_layers))
    cloud = Cloud.of(capture, V)
    table = points_table(cloud, cloud_axes(cloud, "centred", 3), snippets(cloud.rows, capture))
    assert {"pc1", "pc2", "pc3", "prompt", "position", "next_entropy_bits", "text"} <= set(table.columns)
    assert "pc4" not in table.columns and "domain" not in table.columns
    for layer in range(n_layers):
        mine = table.where(table["layer"] == layer)
        points = cloud.points[layer].astype(np.float64) - cloud.points[layer].mean(axis=0, dtype=np.float64)
        scores = points @ np.linalg.svd(points, full_matrices=False)[2][:3].T
        for i in range(3):
            np.testing.assert_allclose(np.abs(mine[f"pc{i + 1}"]), np.abs(scores[:, i]), atol=1e-8)
        np.testing.assert_array_equal(mine["prompt"], np.arange(20))
        np.testing.assert_array_equal(mine["next_entropy_bits"], cloud.rows["next_entropy_bits"])
    assert table.units["pc2"] == "activation" and table.units["next_entropy_bits"] == "bits"


def test_a_text_is_shown_by_its_end_and_a_sequence_by_its_last_tokens():
    capture = synthetic_capture((V,), Shape(n_prompts=3))
    rows = capture.rows
    prompts = [Prompt(text="short"), Prompt(text="x" * 60), Prompt(text="begin" + "y" * 60)]
    texts = replace(capture, prompts=replace(capture.prompts, prompts=prompts))
    assert snippets(rows, texts).tolist() == ["short", "x" * 60, "…" + "y" * 60]
    prompts = [Prompt(token_ids=tuple(range(10, 30)), scored=(0,))] * 3
    sequences = replace(capture, prompts=replace(capture.prompts, prompts=prompts))
    rows = rows.with_column("position", np.array([0, 7, 8]), "tokens")
    shown = ["10", "10 11 12 13 14 15 16 17", "… 11 12 13 14 15 16 17 18"]
    assert snippets(rows, sequences).tolist() == shown


def test_the_cloud_of_noise_has_the_deviations_of_the_columns():
    points = np.random.default_rng(0).standard_normal((4000, 4)) * [9, 3, 1, 0] + 5
    table = null_points_table(points, "centred", 1)
    assert list(table.columns) == ["pc1", "pc2"]
    assert [table["pc1"].std(), table["pc2"].std()] == pytest.approx([9, 3], rel=0.05)
    standard = null_points_table(points, "zscored", 1)
    assert [standard["pc1"].std(), standard["pc2"].std()] == pytest.approx([1, 1], rel=0.05)
    assert not np.stack(list(null_points_table(np.ones((9, 3)), "zscored", 0).columns.values())).any()
