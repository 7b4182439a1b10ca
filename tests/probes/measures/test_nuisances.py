"""Nuisances: fitted on one half, applied to both."""

import numpy as np
import pytest
from interp.probes.measures.nuisances import all_nuisances, mean_alone
from sklearn.linear_model import LinearRegression

from interp.table import Table


def table(**columns):
    n = len(columns["length"])
    columns = {"prompt": np.arange(n), "position": columns["length"] - 1, "token": np.zeros(n, int), **columns}
    return Table(columns, dict.fromkeys(columns, "1"))


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return table(
        length=rng.integers(5, 30, n), token=rng.integers(0, 3, n), domain=rng.choice(["code", "news"], n)
    )  # fmt: skip


def test_what_is_left_equals_residuals_of_a_regression_fitted_on_the_fitting_half():
    pool, fitting = rows(), np.arange(0, 60, 2)
    values = np.random.default_rng(1).standard_normal((60, 3))
    dummies = [pool["length"], *(pool["token"] == t for t in range(3)), pool["domain"] == "code"]
    design = np.column_stack(dummies).astype(float)
    expected = values - LinearRegression().fit(design[fitting], values[fitting]).predict(design)
    assert all_nuisances(pool, fitting).apply(values) == pytest.approx(expected, abs=1e-9)


def test_the_judged_half_does_not_move_the_regression():
    pool, fitting = rows(), np.arange(30)
    values = np.random.default_rng(1).standard_normal((60, 2))
    changed = values.copy()
    changed[30:] += 100
    removal = all_nuisances(pool, fitting)
    assert removal.apply(values)[:30] == pytest.approx(removal.apply(changed)[:30])
    assert removal.apply(changed)[30:] == pytest.approx(removal.apply(values)[30:] + 100)


def test_rare_tokens_are_one_level_together():
    token = np.r_[np.zeros(20, int), np.ones(20, int), np.arange(2, 22)]
    pool = table(length=np.full(60, 9), token=token)
    removal = all_nuisances(pool, np.arange(60))
    assert removal.names == ("last token (2 levels)",)
    assert removal.basis.shape[1] == 3


def test_positions_are_levels_in_sequences_and_the_length_in_texts():
    n_sequences, per_sequence = 10, 4
    position = np.tile(np.arange(per_sequence), n_sequences)
    columns = {
        "prompt": np.repeat(np.arange(n_sequences), per_sequence), "position": position,
        "length": np.full(40, 4), "token": np.zeros(40, int),
    }  # fmt: skip
    sequences = Table(columns, dict.fromkeys(columns, "1"))
    removal = all_nuisances(sequences, np.arange(40))
    assert removal.names == ("position (4 levels)",)
    assert removal.apply(np.square(position)[:, None].astype(float)) == pytest.approx(np.zeros((40, 1)), abs=1e-12)
    assert all_nuisances(rows(), np.arange(60)).names[0] == "length"
    assert "position" not in all_nuisances(rows(), np.arange(60)).names


def test_nothing_that_varies_leaves_the_mean():
    pool = table(length=np.full(12, 7))
    removal = all_nuisances(pool, np.arange(6))
    values = np.arange(12.0)[:, None]
    assert removal.names == ()
    assert removal.apply(values) == pytest.approx(mean_alone(12, np.arange(6)).apply(values))
    assert removal.apply(values) == pytest.approx(values - 2.5)


def test_more_nuisances_than_half_the_rows_leave_too_little():
    pool, fitting = rows(12), np.arange(6)
    assert all_nuisances(rows(), np.arange(60)).leaves_something
    assert not all_nuisances(pool, fitting[:3]).leaves_something


@pytest.mark.parametrize(("n", "is_level"), [(4, False), (5, True)])
def test_a_level_is_shared_by_five_prompts_of_the_fitting_half(n, is_level):
    token = np.where(np.arange(60) < n, 7, 1000 + np.arange(60))
    token[40:] = 7  # those of the judged half do not count
    length = np.full(60, 9)
    made = table(prompt=np.arange(60), position=length - 1, length=length, token=token)
    removal = all_nuisances(made, np.arange(40))
    assert removal.names == (("last token (1 levels)",) if is_level else ())
    label = np.random.default_rng(0).standard_normal((60, 1))
    left = removal.apply(label)
    mean = label[:n].mean() if is_level else label[:40].mean()
    np.testing.assert_allclose(left[40:], label[40:] - mean)


def test_values_at_the_fitting_rows_alone_are_left_with_the_same():
    made, fitting = rows(), np.arange(0, 60, 2)
    removal = all_nuisances(made, fitting)
    values = np.random.default_rng(1).standard_normal((60, 3))
    np.testing.assert_allclose(removal.apply_to_fitting(values[fitting]), removal.apply(values)[fitting], atol=1e-12)
    assert np.abs(removal.design[fitting].T @ removal.apply_to_fitting(values[fitting])).max() < 1e-9
