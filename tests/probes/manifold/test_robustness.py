"""Robust variants of the manifold: loud columns, halves, other sites."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.manifold.probe import Manifold
from interp.probes.manifold.quantities import QUANTITIES
from interp.probes.manifold.robustness import (
    dropped_estimates,
    first_axis_cosines,
    stability_estimates,
    without_loudest,
)
from interp.probes.measures.cloud import Cloud

from interp.need import Need
from interp.statistics.resampling import split_rows
from interp.testing import Shape, synthetic_capture


def cloud_of(values, n_scored=1):
    """A cloud with these values `[layer, row, feature]`."""
    n_layers, n_rows, n_features = values.shape
    shape = Shape(n_rows // n_scored, n_scored, n_layers, d_head=n_features, n_kv_heads=1)
    need = Need("v")
    return Cloud.of(synthetic_capture((need,), shape, planted={"v": values[:, :, None]}), need)


def said(name, found):
    """The scalar of the first layer."""
    return QUANTITIES.scalar(name, found)


def noise(n_rows=60, n_features=12, n_layers=1, seed=0):
    return np.random.default_rng(seed).standard_normal((n_layers, n_rows, n_features))


def test_dropped_statistics_equal_those_of_what_stays():
    values = noise() * np.r_[np.ones(9), np.full(3, 9.0)]
    left = without_loudest(cloud_of(values), 3)
    found = dropped_estimates(left, "centred", 0)
    eigen = np.linalg.eigvalsh(np.cov(values[0][:, :9].T))
    assert found["pc1_plus_pc2_share_dropped"].value[0] == pytest.approx(eigen[-2:].sum() / eigen.sum())
    assert found["participation_ratio_dropped"].value[0] == pytest.approx(eigen.sum() ** 2 / np.square(eigen).sum())


@pytest.mark.slow
@pytest.mark.parametrize("of_noise", [
    lambda seed: said("pc1_plus_pc2_share_dropped", dropped_estimates(
        without_loudest(cloud_of(noise(40, 12, seed=seed)), 3), "centred", seed)["pc1_plus_pc2_share_dropped"]),
    lambda seed: said("axis_stability", stability_estimates(cloud_of(noise(30, 10, seed=seed)), "centred", 4, seed)),
], ids=["dropped", "stability"])  # fmt: skip
def test_numbers_of_noise_lie_in_their_band_at_the_nominal_rate(of_noise):
    found = [of_noise(seed) for seed in range(100)]
    outside = sum(not scalar.null.band[0] <= scalar.value <= scalar.null.band[1] for scalar in found)
    assert outside <= 13  # 5 + 3.5 standard deviations of Binomial(100, 0.05)


@pytest.mark.slow
def test_first_axes_of_a_spike_are_stable():
    spiked = noise(80, 30)
    spiked[:, :, 0] *= 10
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal((30, 30)))[0]
    scalar = said("axis_stability", stability_estimates(cloud_of(spiked @ turn), "centred", 10, 0))
    assert scalar.value > 0.98 > scalar.null.band[1]


@pytest.mark.parametrize("n_features", [8, 60])
def test_cosines_of_halves_equal_explicit_decompositions(n_features):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, n_features)) * np.linspace(1, 4, n_features)
    splits = [split_rows(np.arange(40), rng) for _ in range(3)]
    axes = [[np.linalg.svd(points[h] - points[h].mean(axis=0))[2][0] for h in split] for split in splits]
    assert first_axis_cosines(points, splits) == pytest.approx([abs(a @ b) for a, b in axes], rel=1e-6)


def test_halves_of_unequal_sizes_keep_their_order():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((30, 50)) * np.linspace(1, 4, 50)
    splits = [(np.arange(n), np.arange(n, 30)) for n in (12, 18, 12)]
    one_by_one = [first_axis_cosines(points, [split])[0] for split in splits]
    assert first_axis_cosines(points, splits) == pytest.approx(one_by_one, rel=1e-9)
    assert one_by_one[0] == one_by_one[2] != one_by_one[1]
    assert first_axis_cosines(np.ones((30, 50)), splits).tolist() == [0, 0, 0]


def test_equal_rows_and_too_few_prompts_give_reasons():
    flat = cloud_of(np.ones((1, 20, 6)))
    scalar = said("axis_stability", stability_estimates(flat, "centred", 3, 0))
    assert np.isnan(scalar.value) and scalar.null_reason == "every row is the same point: nothing varies"
    three = said("axis_stability", stability_estimates(cloud_of(noise(3, 6)), "centred", 3, 0))
    assert three.null_reason == "fewer than 4 prompts make no halves"
    assert three.underpowered


def test_the_loudest_are_those_of_their_own_layer():
    rows = np.random.default_rng(7).standard_normal((2, 40, 5)) * np.array([[5, 1, 1, 3, 1], [1, 1, 4, 1, 2]])[:, None]
    left = without_loudest(cloud_of(rows), 2)
    np.testing.assert_allclose(left.points[0], rows[0][:, [1, 2, 4]], rtol=1e-6)
    np.testing.assert_allclose(left.points[1], rows[1][:, [0, 1, 3]], rtol=1e-6)
    assert without_loudest(cloud_of(rows), 4) is None and without_loudest(cloud_of(rows), 3) is not None


QUICK = Manifold(n_permutations=99, n_null=20, n_bootstrap=100, per_quintile=6, n_splits=4)


@pytest.mark.parametrize("site", ["v", "z", "resid"])
def test_the_site_asked_for_is_the_one_measured(site):
    probe = replace(QUICK, site=site)
    assert probe.needs == (Need(site),)
    capture = synthetic_capture(probe.needs, Shape(n_prompts=60))
    rows = capture[Need(site)][-1].reshape(60, -1).astype(np.float64)
    eigen = np.linalg.eigvalsh(np.cov(rows.T))
    found = probe.analyse(capture, {})
    assert found["pc1_share"].value == pytest.approx(eigen[-1] / eigen.sum())
    assert found.tables["by_layer"].n_rows == (4 if site == "resid" else 3)


def test_loud_columns_and_their_absence_stand_beside_each_other():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((1, 75, 2, 8))
    values[..., 0, :2] *= 40
    found = replace(QUICK, n_dropped=2).analyse(
        synthetic_capture(QUICK.needs, Shape(75, n_layers=1), planted={"v": values}), {}
    )
    assert found["pc1_plus_pc2_share"].value > 0.95 and found["pc1_plus_pc2_share_dropped"].value < 0.3
    left = found["pc1_plus_pc2_share_dropped"]
    assert left.value == pytest.approx(left.null.value, rel=0.2)
    assert "axis_stability" in {figure.name for figure in QUICK.figures(found)}
