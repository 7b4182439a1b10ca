"""Ridge against scikit-learn and against explicit refits."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from interp.statistics.ridge import PENALTIES, PrincipalForm, fit_ridge


def orthonormal(columns):
    return np.linalg.qr(columns)[0]


def world(n, d, units, seed=0):
    """Rows and two labels with a mean and a slope taken out, and what was taken out."""
    rng = np.random.default_rng(seed)
    nuisances = orthonormal(np.column_stack([np.ones(n), rng.standard_normal(n)]))
    rows = rng.standard_normal((n, d)) * np.linspace(3, 0.1, d)
    labels = np.column_stack([rows @ rng.standard_normal(d), np.zeros(n)]) + rng.standard_normal((n, 2)) * 2
    return rows - nuisances @ (nuisances.T @ rows), labels - nuisances @ (nuisances.T @ labels), nuisances


def left_out_error(rows, labels, nuisances, units, alpha):
    """Refit the penalised and the unpenalised coefficients without every unit in turn."""
    design = np.hstack([nuisances, rows])
    penalty = np.diag(np.r_[np.zeros(nuisances.shape[1]), np.full(rows.shape[1], alpha)])
    total = 0
    for unit in np.unique(units):
        out = units == unit
        x, y = design[~out], labels[~out]
        total += np.square(labels[out] - design[out] @ np.linalg.solve(x.T @ x + penalty, x.T @ y)).sum(axis=0)
    return total


@pytest.mark.parametrize("shape", [(30, 8), (12, 40)])
def test_the_principal_form_holds_the_rows(shape):
    rows = world(*shape, None)[0]
    form = PrincipalForm.of(rows)
    assert form.left * form.singular @ form.directions == pytest.approx(rows, abs=1e-7)
    assert form.directions @ form.directions.T == pytest.approx(np.eye(len(form.singular)), abs=1e-7)
    assert (np.diff(form.singular) <= 0).all()


@pytest.mark.parametrize("shape", [(30, 8), (12, 40)])
def test_coefficients_are_those_of_scikit_learn(shape):
    units = np.arange(shape[0])
    rows, labels, nuisances = world(*shape, units)
    form = PrincipalForm.of(rows)
    fit = fit_ridge(form, labels, units, nuisances)
    for i in range(2):
        expected = Ridge(alpha=fit.penalty[i] * fit.scale, fit_intercept=False).fit(rows, labels[:, i]).coef_
        assert form.directions.T @ fit.coefficients[:, i] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("n", "d", "units"),
    [
        (30, 8, np.arange(30)),
        (12, 40, np.arange(12)),
        (36, 6, np.arange(36) // 3),
        (20, 5, np.repeat([0, 1, 2, 3], [2, 4, 6, 8])),
    ],
)
def test_the_penalty_is_the_one_whose_refits_without_each_prompt_err_least(n, d, units):
    rows, labels, nuisances = world(n, d, units, seed=3)
    fit = fit_ridge(PrincipalForm.of(rows), labels, units, nuisances)
    errors = np.array([left_out_error(rows, labels, nuisances, units, a * fit.scale) for a in PENALTIES])
    assert fit.penalty.tolist() == PENALTIES[errors.argmin(axis=0)].tolist()
    assert len(set(errors.argmin(axis=0))) == 2  # one label has a signal and one has none: the choice matters


def test_left_out_residuals_equal_refits_exactly():
    from interp.statistics.ridge import _left_out_error, members_of

    for n, d, units in [(14, 6, np.arange(14)), (24, 6, np.arange(24) // 4)]:
        rows, labels, nuisances = world(n, d, units, seed=5)
        form = PrincipalForm.of(rows)
        squared = np.square(form.singular)
        loads = form.left.T @ labels
        outside = labels - form.left @ loads
        found = _left_out_error(form.left, loads, outside, squared / (squared + 2.0), nuisances, members_of(units))
        assert found == pytest.approx(left_out_error(rows, labels, nuisances, units, 2.0), rel=1e-8)


def test_a_prompt_that_alone_decides_a_nuisance_is_passed_over():
    rng = np.random.default_rng(0)
    alone = np.zeros(20)
    alone[7] = 1.0
    nuisances = orthonormal(np.column_stack([np.ones(20), alone]))
    rows, label = rng.standard_normal((20, 4)), rng.standard_normal((20, 1))
    rows, label = (x - nuisances @ (nuisances.T @ x) for x in (rows, label))
    fit = fit_ridge(PrincipalForm.of(rows), label, np.arange(20), nuisances)
    assert np.isfinite(fit.coefficients).all()


def test_rounding_is_no_axis():
    rows = np.outer(np.arange(10.0) - 4.5, [1.0, 2.0, 3.0])
    assert len(PrincipalForm.of(rows).singular) == 1
    assert len(PrincipalForm.of(np.zeros((5, 3))).singular) == 0


def test_no_rows_have_no_axes():
    assert PrincipalForm.of(np.zeros((0, 4))).directions.shape == (0, 4)
