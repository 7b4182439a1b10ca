"""Rank correlations of coordinates with entropy, layer by layer, against scipy."""

import numpy as np
import pytest
from interp.probes.measures.cloud import Cloud
from interp.probes.measures.entropy_correlation import Resampled, correlation_profile, within_position
from scipy import stats

from interp.need import Need
from interp.testing import Shape, synthetic_capture


def cloud_of(n=30, n_scored=1, **columns):
    capture = synthetic_capture((Need("v"),), Shape(n_prompts=n, n_scored=n_scored), columns=columns)
    return Cloud.of(capture, Need("v"))


def test_the_profile_is_spearmans_correlation_with_its_sign_turned_up():
    rng = np.random.default_rng(0)
    stratum = np.arange(30) % 3
    cloud = cloud_of(stratum=stratum)
    entropy = cloud.rows["next_entropy_bits"]
    coordinates = np.stack(
        [-entropy + rng.standard_normal(30), entropy + rng.standard_normal(30), rng.standard_normal(30)]
    )
    resampled = Resampled.of(cloud, 99, 80, 5)
    found = correlation_profile(coordinates, "next_entropy_bits", cloud, resampled, "said")
    rho = np.array([stats.spearmanr(x, entropy)[0] for x in coordinates])
    assert rho[0] < 0 and [s.value for s in found] == pytest.approx(np.abs(rho))
    permuted = np.array([[abs(stats.spearmanr(x, entropy[o])[0]) for x in coordinates] for o in resampled.orders])
    for layer, scalar in enumerate(found):
        reached = (permuted.max(axis=1) >= abs(rho[layer]) - 1e-12).sum()
        assert scalar.p == pytest.approx((1 + reached) / 100) and scalar.p_over == "layers"
        assert scalar.null.value == pytest.approx(permuted[:, layer].mean())
        np.testing.assert_allclose(scalar.null.band, np.quantile(permuted[:, layer], [0.025, 0.975]))
        turned = coordinates[layer] * np.sign(rho[layer])
        drawn = [stats.spearmanr(np.repeat(turned, w), np.repeat(entropy, w))[0] for w in resampled.weights]
        half = stats.norm.ppf(0.975) * np.arctanh(drawn).std(ddof=1)
        np.testing.assert_allclose(scalar.interval, np.tanh(np.arctanh(abs(rho[layer])) + np.array([-half, half])))
        assert (scalar.n, scalar.n_unit, scalar.meaning) == (30, "prompt", "said") and not scalar.underpowered
    for s in range(3):
        assert (resampled.weights[:, stratum == s].sum(axis=1) == 10).all()


def test_a_coordinate_that_never_varies_is_undefined_and_underpowered():
    cloud = cloud_of()
    still, own = np.ones(30), np.asarray(cloud.rows["next_entropy_bits"], dtype=np.float64)
    resampled = Resampled.of(cloud, 19, 20, 0)
    nothing, everything = correlation_profile(np.stack([still, own]), "next_entropy_bits", cloud, resampled, "x")
    assert np.isnan(nothing.value) and nothing.underpowered and nothing.p is None
    assert nothing.null_reason == nothing.interval_reason == "the coordinate or next_entropy_bits never varies"
    assert everything.value == pytest.approx(1) and everything.interval is None
    assert everything.interval_reason == "every resample gives the same value" and everything.p == 1 / 20


def test_within_positions_only_the_order_among_rows_of_one_position_is_left():
    cloud = cloud_of(n=8, n_scored=3)
    rng = np.random.default_rng(1)
    coordinates = rng.standard_normal((2, 24))
    position = cloud.rows["position"]
    entropy = np.asarray(cloud.rows["next_entropy_bits"])
    residual, ranked = within_position(coordinates, "next_entropy_bits", cloud)
    for place in np.unique(position):
        mine = position == place
        for layer in range(2):
            np.testing.assert_allclose(residual[layer, mine], stats.rankdata(coordinates[layer, mine]) - 4.5)
        np.testing.assert_allclose(ranked.rows["next_entropy_bits"][mine], stats.rankdata(entropy[mine]) - 4.5)
    np.testing.assert_array_equal(ranked.points, cloud.points)
    assert ranked.unit == "sequence" and ranked.rows.units["next_entropy_bits"] == "rank"
