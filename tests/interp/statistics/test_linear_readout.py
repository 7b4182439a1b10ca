"""Linear readouts are those of scikit-learn; what is planted is read out on other rows, and noise is not."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import balanced_accuracy_score, r2_score

from interp.statistics.linear_readout import balanced_accuracy, held_out_r2, read_out
from interp.statistics.ridge import absolute_penalty


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
    is_so, fitting, judged = rng.random((90, 2)) < 0.3, np.arange(50), np.arange(50, 90)
    said, expected = is_so + rng.standard_normal((90, 2)), []
    for each, true in zip(said.T, is_so.T, strict=True):
        cut = (each[:50][true[:50]].mean() + each[:50][~true[:50]].mean()) / 2
        expected.append(balanced_accuracy_score(true[50:], each[50:] > cut))
    assert balanced_accuracy(said, is_so, fitting, judged) == pytest.approx(np.mean(expected))
    is_so[:50] = True
    assert np.isnan(balanced_accuracy(said, is_so, fitting, judged))
