"""Shares, ratios and axes against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.statistics.spectra import (
    centred_gram,
    eigenvalues,
    gram_eigenvalues,
    gram_statistics,
    leading_vectors,
    principal_axes,
    scaled,
    smaller_gram,
)


def test_shares_and_participation_ratios_are_those_of_closed_forms() -> None:
    rows = np.vstack([np.eye(7), -np.eye(7)])
    np.testing.assert_allclose(gram_statistics(smaller_gram(rows)), [1 / 7, 2 / 7, 7])
    one, flat = np.outer(np.arange(9.0), np.ones(20)), np.full((6, 5), 0.1, dtype=np.float32)
    np.testing.assert_allclose(gram_statistics(smaller_gram(scaled(one, "centred"))), [1, 1, 1])
    assert np.isnan(gram_statistics(smaller_gram(scaled(flat, "centred")))).all()
    two = np.array([[1.0, 2.0, 2.0], [-1.0, -2.0, -2.0]])
    np.testing.assert_allclose(eigenvalues(two), [18])
    np.testing.assert_allclose(eigenvalues(two[:, :1]), [2])
    np.testing.assert_allclose(eigenvalues(np.zeros((1, 3))), [0])


@pytest.mark.parametrize("n_features", [4, 30])
def test_eigenvalues_equal_those_of_the_covariance(n_features: int) -> None:
    rows = np.random.default_rng(0).standard_normal((12, n_features))
    expected = np.linalg.eigvalsh(np.cov(rows.T) * 11)[::-1][: min(11, n_features)]
    np.testing.assert_allclose(eigenvalues(scaled(rows, "centred")), expected, rtol=1e-9)


def test_z_scored_columns_weigh_the_same_constant_ones_nothing_and_a_gram_matrix_is_centred_as_its_rows() -> None:
    rows = np.random.default_rng(1).standard_normal((30, 5)) * [1, 10, 100, 1000, 0] + 3.3
    z = scaled(rows, "zscored")
    np.testing.assert_allclose(np.square(z).mean(axis=0), [1, 1, 1, 1, 0], atol=1e-12)
    np.testing.assert_array_equal(z[:, 4], 0)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(centred_gram(rows @ rows.T), centred @ centred.T, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(4, 30), d=st.integers(2, 40), scale=st.floats(1e-3, 1e3))
def test_centred_statistics_ignore_rotation_order_shift_and_scale(seed: int, n: int, d: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * rng.exponential(size=d)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    moved = rng.permutation(rows @ rotation * scale + rng.standard_normal(d))
    np.testing.assert_allclose(
        gram_statistics(smaller_gram(scaled(moved, "centred"))),
        gram_statistics(smaller_gram(scaled(rows, "centred"))),
        rtol=1e-8,
    )


@pytest.mark.parametrize("shape", [(40, 6), (12, 60), (450, 500)])
def test_axes_are_orthonormal_and_carry_the_leading_variances(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    rows = scaled(rng.standard_normal(shape) * np.linspace(3, 0.1, shape[1]), "centred")
    axes = principal_axes(rows, 3)
    np.testing.assert_allclose(axes.directions @ axes.directions.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(np.square(axes.scores).sum(axis=0), eigenvalues(rows)[:3], rtol=1e-9)


@pytest.mark.parametrize("loadings", [[-1.0, 4.0, -2.0], [1.0, -1.0]])  # of those that tie the first
def test_the_largest_loading_of_an_axis_is_positive_and_axes_without_extent_have_no_scores(loadings) -> None:
    for sign in (1, -1):
        rows = np.outer([1.0, -1.0, 0.0], sign * np.array(loadings))
        direction = principal_axes(rows, 1).directions[0]
        np.testing.assert_allclose(direction, np.array(loadings) / np.linalg.norm(loadings))
    for shape in ((4, 6), (6, 4)):  # without extent
        axes = principal_axes(np.zeros(shape), 2)
        assert axes.directions.shape == (2, shape[1]) and axes.scores.shape == (shape[0], 2)
        assert not axes.scores.any() and np.isin(np.linalg.norm(axes.directions, axis=1), (0, 1)).all()


@pytest.mark.parametrize("n_rows", [12, 120])  # fewer and more than are decomposed as a whole
@pytest.mark.parametrize("n_axes", [1, 2, 5])
def test_leading_vectors_of_many_matrices_are_those_of_the_whole_decomposition(n_axes: int, n_rows: int) -> None:
    rows = np.random.default_rng(3).standard_normal((2, 3, n_rows, 130))
    gram = centred_gram(rows @ rows.swapaxes(-1, -2))
    gram[0, 1] = 0.0
    found = leading_vectors(gram, n_axes)
    assert found.shape == (2, 3, n_rows, n_axes)
    np.testing.assert_allclose(found.swapaxes(-1, -2) @ found, np.broadcast_to(np.eye(n_axes), (2, 3, n_axes, n_axes)),
                               atol=1e-12)  # fmt: skip
    for mine, one in zip(found.reshape(6, n_rows, -1), gram.reshape(6, n_rows, n_rows), strict=True):
        values = np.linalg.eigvalsh(one)[::-1][:n_axes]
        np.testing.assert_allclose(one @ mine, mine * values, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
@pytest.mark.parametrize("n_rows", [9, 120])
def test_statistics_of_inner_products_are_those_of_the_spectrum(n_rows: int, scale: float) -> None:
    rows = scale * np.random.default_rng(4).standard_normal((3, n_rows, 5))
    gram = centred_gram(rows @ rows.swapaxes(-1, -2))
    spectrum = gram_eigenvalues(gram)
    first, total = spectrum[:, 0], spectrum.sum(axis=1)
    expected = [first / total, (first + spectrum[:, 1]) / total, total**2 / np.square(spectrum).sum(axis=1)]
    np.testing.assert_allclose(gram_statistics(gram), np.transpose(expected), rtol=1e-10)
    assert np.isnan(gram_statistics(np.zeros((2, 9, 9)))).all()
    np.testing.assert_allclose(gram_statistics(np.array([[4.0]])), [1, 1, 1])
