"""Ridge, and linear readouts by it, against scikit-learn and against explicit refits."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import balanced_accuracy_score, r2_score

from interp.statistics.linear_readout import balanced_accuracy, held_out_r2, read_out
from interp.statistics.resampling import members_of
from interp.statistics.ridge import (
    PENALTIES,
    PrincipalForm,
    absolute_penalty,
    fit_ridge,
    left_out_error,
    ridge_axis,
    ridge_coefficients,
)


def orthonormal(columns):
    return np.linalg.qr(columns)[0]


def world(n, d, units, seed=0):
    """Rows and two labels with a mean and a slope taken out, and what was taken out."""
    rng = np.random.default_rng(seed)
    nuisances = orthonormal(np.column_stack([np.ones(n), rng.standard_normal(n)]))
    rows = rng.standard_normal((n, d)) * np.linspace(3, 0.1, d)
    labels = np.column_stack([rows @ rng.standard_normal(d), np.zeros(n)]) + rng.standard_normal((n, 2)) * 2
    return rows - nuisances @ (nuisances.T @ rows), labels - nuisances @ (nuisances.T @ labels), nuisances


def error_on_left_out(rows, labels, nuisances, out, alpha):
    """Refit the penalised and the unpenalised coefficients without these rows, and judge on them."""
    design = np.hstack([nuisances, rows])
    penalty = np.diag(np.r_[np.zeros(nuisances.shape[1]), np.full(rows.shape[1], alpha)])
    x, y = design[~out], labels[~out]
    return np.square(labels[out] - design[out] @ np.linalg.solve(x.T @ x + penalty, x.T @ y)).sum(axis=0)


def refitted_error(rows, labels, nuisances, units, alpha):
    """Of every unit in turn."""
    return sum(error_on_left_out(rows, labels, nuisances, units == unit, alpha) for unit in np.unique(units))


def errors_left_out(form, labels, nuisances, units, *penalties):
    """As the product has them, at each of the penalties."""
    squared, loads = np.square(form.singular), form.left.T @ labels
    given = form.left, loads, labels - form.left @ loads
    return np.array([left_out_error(*given, squared / (squared + a), nuisances, members_of(units)) for a in penalties])


@pytest.mark.parametrize("shape", [(30, 8), (12, 40)])
def test_the_principal_form_holds_the_rows_and_coefficients_are_those_of_scikit_learn(shape):
    rows = world(*shape, None)[0]
    form = PrincipalForm.of(rows)
    assert form.left * form.singular @ form.directions == pytest.approx(rows, abs=1e-7)
    assert form.directions @ form.directions.T == pytest.approx(np.eye(len(form.singular)), abs=1e-7)
    assert (np.diff(form.singular) <= 0).all()
    units = np.arange(shape[0])
    rows, labels, nuisances = world(*shape, units)
    form = PrincipalForm.of(rows)
    fit = fit_ridge(form, labels, units, nuisances)
    for i in range(2):
        expected = Ridge(alpha=fit.penalty[i] * fit.scale, fit_intercept=False).fit(rows, labels[:, i]).coef_
        assert form.directions.T @ fit.coefficients[:, i] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("d", "units"),
    [(8, np.arange(30)), (40, np.arange(12)), (6, np.arange(36) // 3), (5, np.repeat([0, 1, 2, 3], [2, 4, 6, 8]))],
)
def test_the_penalty_is_the_one_whose_refits_without_each_prompt_err_least(d, units):
    rows, labels, nuisances = world(len(units), d, units, seed=3)
    fit = fit_ridge(PrincipalForm.of(rows), labels, units, nuisances)
    errors = np.array([refitted_error(rows, labels, nuisances, units, a * fit.scale) for a in PENALTIES])
    assert fit.penalty.tolist() == PENALTIES[errors.argmin(axis=0)].tolist()
    assert len(set(errors.argmin(axis=0))) == 2  # one label has a signal and one has none: the choice matters


def test_left_out_residuals_equal_refits_but_for_what_a_prompt_alone_decides():
    for n, d, units in [(14, 6, np.arange(14)), (24, 6, np.arange(24) // 4)]:
        rows, labels, nuisances = world(n, d, units, seed=5)
        (found,) = errors_left_out(PrincipalForm.of(rows), labels, nuisances, units, 2.0)
        assert found == pytest.approx(refitted_error(rows, labels, nuisances, units, 2.0), rel=1e-8)
    rng = np.random.default_rng(0)
    alone = np.zeros(20)
    alone[7] = 1.0
    nuisances = orthonormal(np.column_stack([np.ones(20), alone]))
    rows, label = rng.standard_normal((20, 4)), rng.standard_normal((20, 1))
    rows, label = (x - nuisances @ (nuisances.T @ x) for x in (rows, label))
    fit = fit_ridge(PrincipalForm.of(rows), label, np.arange(20), nuisances)
    assert np.isfinite(fit.coefficients).all()


def test_what_only_a_unit_decides_is_no_part_of_its_left_out_residuals():
    """Units 0 and 1 share a level that has a mean of its own; unit 2 has one alone, and keeps its deviations."""
    rng = np.random.default_rng(6)
    units, level = np.repeat([0, 1, 2, 3, 4], 3), np.repeat([0, 0, 1, 2, 2], 3)
    rows, labels = rng.standard_normal((15, 2)), rng.standard_normal((15, 2))
    nuisances = (level[:, None] == np.arange(3)) / np.sqrt(np.bincount(level))
    rows, labels = (x - nuisances @ (nuisances.T @ x) for x in (rows, labels))
    (found,) = errors_left_out(PrincipalForm.of(rows), labels, nuisances, units, 2.0)
    alone = units == 2
    x, y = rows[~alone], labels[~alone]
    slopes = np.linalg.solve(x.T @ x + 2 * np.eye(2), x.T @ y)
    expected = sum(error_on_left_out(rows, labels, nuisances, units == unit, 2.0) for unit in (0, 1, 3, 4))
    assert found == pytest.approx(expected + np.square(labels[alone] - rows[alone] @ slopes).sum(axis=0))


@pytest.mark.parametrize(("n", "d"), [(30, 8), (12, 40)])
def test_the_ridge_direction_is_that_of_scikit_learn(n, d):
    rng = np.random.default_rng(4)
    rows, label = rng.standard_normal((n, d)) + 3, rng.standard_normal(n) + 5
    expected = Ridge(alpha=2.5).fit(rows, label).coef_
    centred = rows - rows.mean(axis=0)
    assert ridge_coefficients(centred, label - label.mean(), 2.5) == pytest.approx(expected, rel=1e-8)
    assert ridge_axis(rows, label, 2.5) == pytest.approx(expected / np.linalg.norm(expected), rel=1e-8)
    singular = np.linalg.svd(centred, compute_uv=False)
    assert absolute_penalty(centred, 0.3) == pytest.approx(0.3 * np.square(singular).sum() / min(n - 1, d))
    assert not ridge_axis(np.ones((n, d)), label, 0.0).any()


def test_rounding_and_no_rows_have_no_axes():
    rows = np.outer(np.arange(10.0) - 4.5, [1.0, 2.0, 3.0])
    assert len(PrincipalForm.of(rows).singular) == 1
    assert len(PrincipalForm.of(np.zeros((5, 3))).singular) == 0
    assert PrincipalForm.of(np.zeros((0, 4))).directions.shape == (0, 4)


def test_a_readout_and_its_r2_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    points, labels, is_fitted = rng.standard_normal((60, 7)), rng.standard_normal((60, 3)), np.arange(60) % 3 > 0
    fitted = points[is_fitted] - points[is_fitted].mean(axis=0)
    theirs = Ridge(absolute_penalty(fitted, 0.1)).fit(points[is_fitted], labels[is_fitted]).predict(points)
    np.testing.assert_allclose(read_out(points, labels, is_fitted, 0.1), theirs)
    np.testing.assert_allclose(read_out(points, labels, np.flatnonzero(is_fitted), 0.1), theirs)
    rng = np.random.default_rng(1)
    label, is_fitted = rng.standard_normal(50), np.arange(50) < 20
    label[~is_fitted] += label[is_fitted].mean() - label[~is_fitted].mean()  # now both halves have one mean
    said = label + 0.3 * rng.standard_normal(50)
    expected = r2_score(label[~is_fitted], said[~is_fitted])
    assert held_out_r2(said, label, is_fitted, ~is_fitted) == pytest.approx(expected)
    assert np.isnan(held_out_r2(said, np.ones(50), is_fitted, ~is_fitted))


def test_balanced_accuracy_is_that_of_scikit_learn_at_the_midway_cut():
    rng = np.random.default_rng(0)
    is_so, fitting, held_out = rng.random((90, 2)) < 0.3, np.arange(50), np.arange(50, 90)
    said, expected = is_so + rng.standard_normal((90, 2)), []
    for each, true in zip(said.T, is_so.T, strict=True):
        cut = (each[:50][true[:50]].mean() + each[:50][~true[:50]].mean()) / 2
        expected.append(balanced_accuracy_score(true[50:], each[50:] > cut))
    assert balanced_accuracy(said, is_so, fitting, held_out) == pytest.approx(np.mean(expected))
    is_so[:50] = True
    assert np.isnan(balanced_accuracy(said, is_so, fitting, held_out))
