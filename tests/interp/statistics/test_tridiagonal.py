"""Decomposed inner products, against explicit inverses and eigenvalues."""

import numpy as np
import pytest

from interp.statistics.tridiagonal import Diagonal, Tridiagonal, decomposed

FORMS = (Diagonal, Tridiagonal)


def products(n, rank, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n, rank))
    return rows @ rows.T


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize(("n", "rank"), [(2, 2), (7, 3), (60, 90)])
@pytest.mark.parametrize("penalty", [1e-3, 2.0, 1e4])
def test_a_system_is_that_of_the_whole_matrix(kind, n, rank, penalty):
    whole, labels = products(n, rank), np.random.default_rng(1).standard_normal((n, 4))
    form, inverse = kind.of(whole.copy()), np.linalg.inv(whole + penalty * np.eye(n))
    loads = form.turned(labels)
    squares, trace = form.squares(loads, penalty)
    assert form.turned_back(form.solved(loads, penalty)) == pytest.approx(inverse @ labels, rel=1e-6, abs=1e-8)
    assert squares == pytest.approx(np.square(inverse @ labels).sum(axis=0))
    assert trace == pytest.approx(np.trace(inverse))
    assert form.turned_back(form.times(loads[:, 0])[:, None])[:, 0] == pytest.approx(whole @ labels[:, 0])


@pytest.mark.parametrize("kind", FORMS)
def test_eigenvalues_are_those_of_the_whole_matrix(kind):
    whole = products(40, 12)
    form, expected = kind.of(whole.copy()), np.linalg.eigvalsh(whole)[::-1]
    value, vector = form.leading
    turned = form.turned_back(vector[:, None])[:, 0]
    assert form.spectrum == pytest.approx(expected, abs=1e-10)
    assert (value, whole @ turned) == (pytest.approx(expected[0]), pytest.approx(value * turned))
    assert [form.n_above(x) for x in (1e-8, expected[4:6].mean(), 2 * value)] == [12, 5, 0]


def test_many_rows_have_the_tridiagonal_form_and_few_their_eigenvectors():
    assert isinstance(decomposed(products(400, 5)), Tridiagonal)
    assert isinstance(decomposed(products(50, 5)), Diagonal)
