"""What is drawn: coordinates on principal axes, what each point was, and a cloud of noise beside it."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.maps import cloud_axes, null_points_table, points_table, snippets

from interp.need import Need
from interp.prompt import Prompt
from interp.testing import Shape, synthetic_capture

V = Need("v")


@pytest.mark.parametrize("n_layers", [1, 3])
def test_points_lie_on_the_principal_axes_of_their_own_layer(n_layers):
    capture = synthetic_capture((V,), Shape(n_prompts=20, n_layers=n_layers))
    cloud = Cloud.of(capture, V)
    table = points_table(cloud, cloud_axes(cloud, "centred"), capture)
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
