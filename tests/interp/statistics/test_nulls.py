"""Null clouds against the published null table and against themselves."""

import numpy as np
import pytest
from scipy import stats

from interp.statistics.intervals import prediction_band
from interp.statistics.nulls import GaussianClouds, cloud_of_same_covariance, null_spectra
from interp.statistics.spectra import eigenvalues, gram_statistics, scaled, smaller_gram


@pytest.mark.parametrize(
    ("n", "d", "expected"),
    [
        (13, 1024, (0.098, 0.193, 11.9)),
        (75, 512, (0.025, 0.049, 64.7)),
        (75, 1024, (0.021, 0.042, 69.1)),
        (75, 2560, (0.018, 0.036, 71.9)),
    ],
)
def test_z_scored_null_reproduces_the_table(n: int, d: int, expected: tuple[float, ...]) -> None:
    rows = np.random.default_rng(0).standard_normal((n, d))
    (found,) = GaussianClouds(n, d, 30, seed=1).nulls(gram_statistics, [rows], "zscored").mean(axis=1)
    assert (np.abs(found - expected) < (0.001, 0.001, 0.15)).all(), found


@pytest.mark.parametrize("shape", [(20, 60), (60, 20)])
def test_centred_null_has_the_variance_of_each_column(shape: tuple[int, int]) -> None:
    deviation = np.linspace(0.1, 3, shape[1])
    rows = np.outer(np.resize([1.0, -1.0], shape[0]), deviation)
    spectra = null_spectra(rows, "centred", GaussianClouds(*shape, n_draws=400, seed=2))
    expected = (shape[0] - 1) * np.square(deviation).sum()
    assert spectra.sum(axis=1).mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("shape", [(9, 3), (5, 4), (6, 9)])
def test_both_ways_of_drawing_give_what_clouds_give(shape: tuple[int, int]) -> None:
    """Statistics of scatter matrices, or of clouds, are distributed as those of clouds that are drawn and centred."""
    deviation = np.linspace(1, 4, shape[1])
    rng = np.random.default_rng(7)
    grams = [smaller_gram(scaled(rng.standard_normal(shape) * deviation, "centred")) for _ in range(2000)]
    clouds, rows = GaussianClouds(*shape, 2000, seed=8), rng.standard_normal(shape)
    rows *= deviation / rows.std(axis=0)
    (found,) = clouds.nulls(gram_statistics, [rows], "centred")
    expected = np.array([gram_statistics(gram) for gram in grams])
    for statistic in range(3):
        assert stats.ks_2samp(found[:, statistic], expected[:, statistic]).pvalue > 0.001
    totals = null_spectra(rows, "centred", clouds).sum(axis=1)
    assert stats.ks_2samp(totals, [np.trace(gram) for gram in grams]).pvalue > 0.001


def test_nulls_leave_constant_columns_out_and_layers_meet_the_same_draws() -> None:
    rows = np.random.default_rng(4).standard_normal((15, 40))
    clouds = GaussianClouds(15, 40, 10, seed=5)
    doubled = null_spectra(2 * rows, "centred", clouds)
    np.testing.assert_allclose(doubled, 4 * null_spectra(rows, "centred", clouds), rtol=1e-5)
    padded = np.hstack([rows, np.ones((15, 300))])
    wide = GaussianClouds(15, 340, 10, seed=5)
    np.testing.assert_array_equal(null_spectra(padded, "zscored", wide), null_spectra(rows, "zscored", clouds))
    null = prediction_band(np.array([1.0, 2.0, 6.0]))
    half = 4.302653 * np.sqrt(7.0) * np.sqrt(4 / 3)  # t of two degrees of freedom, s² = 7
    assert null == pytest.approx([3, 3 - half, 3 + half], rel=1e-6)


@pytest.mark.parametrize("clusters", [None, np.repeat(np.arange(5), 2)], ids=["independent", "clusters"])
@pytest.mark.parametrize("n_features", [5, 30])
@pytest.mark.parametrize("scaling", ["centred", "zscored"])
def test_null_statistics_of_every_layer_are_those_of_its_null_spectra(n_features: int, scaling, clusters) -> None:
    clouds = GaussianClouds(10, n_features, 4, seed=3, clusters=clusters)
    layers = np.random.default_rng(0).standard_normal((3, 10, n_features)) * np.linspace(1, 3, n_features)
    layers[1, :, :2] = 1.0
    found = clouds.nulls(gram_statistics, layers, scaling)
    for rows, statistics in zip(layers, found, strict=True):
        expected = [gram_statistics(np.diag(spectrum)) for spectrum in null_spectra(rows, scaling, clouds)]
        np.testing.assert_allclose(statistics, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(30, 200), (80, 12)])
def test_flat_cloud_has_exactly_the_sample_covariance(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(6)
    rows = scaled(rng.standard_normal(shape) * np.linspace(0.2, 4, shape[1]), "centred")
    flat = cloud_of_same_covariance(eigenvalues(rows), len(rows), rng)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(eigenvalues(flat)[: len(eigenvalues(rows))], eigenvalues(rows), rtol=1e-8)


@pytest.mark.parametrize("clusters", [np.arange(12), np.zeros(12, dtype=int)], ids=["one a row", "one"])
@pytest.mark.parametrize("scaling", ["centred", "zscored"])
def test_clusters_that_tell_nothing_apart_leave_rows_independent(clusters: np.ndarray, scaling) -> None:
    rows = np.random.default_rng(3).standard_normal((12, 5)) * np.linspace(1, 4, 5)
    first, plain = (
        list(map(list, GaussianClouds(12, 5, 8, seed=4, clusters=c).like([rows]))) for c in (clusters, None)
    )
    np.testing.assert_allclose(first, plain, rtol=1e-6)
    spectra = null_spectra(rows, scaling, GaussianClouds(12, 5, 8, seed=4, clusters=clusters))
    assert np.isfinite(spectra).all()
    assert (spectra > 0).any()
