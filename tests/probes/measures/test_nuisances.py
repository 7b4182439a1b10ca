"""Nuisances: what is a column of the design, and what is a level."""

import numpy as np
import pytest
from interp.probes.measures.nuisances import nuisance_design, orthonormal
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import SplineTransformer

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


def test_what_a_design_tells_equals_a_regression():
    pool = rows()
    values = np.random.default_rng(1).standard_normal((60, 3))
    knots = np.quantile(pool["length"], [0, 0.5, 1])[:, None]
    curve = SplineTransformer(knots=knots).fit_transform(pool["length"][:, None].astype(float))
    dummies = [*curve.T, *(pool["token"] == t for t in range(3)), pool["domain"] == "code"]
    design = np.column_stack(dummies).astype(float)
    expected = LinearRegression().fit(design, values).predict(design)
    assert nuisance_design(pool).predicted(values) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("bend", [np.square, np.abs, np.sqrt])
def test_numbers_act_along_a_curve(bend):
    length = np.random.default_rng(1).integers(5, 60, 200)
    number = (length - length.mean()) / length.std()
    bent = bend(np.abs(number) if bend is np.sqrt else number)[:, None]
    left = bent - nuisance_design(table(length=length)).predicted(bent)
    assert left.var() < 0.1 * bent.var()


def test_designs_share_levels_and_hold_numbers_in_an_orthonormal_basis():
    length, token = np.repeat(np.arange(24), 5) + 5, np.repeat(np.arange(24) // 2, 5)
    alone, together = (
        nuisance_design(table(length=length, token=token, cluster=cluster), least=5)
        for cluster in (np.arange(120), np.repeat(np.arange(24), 5))
    )
    assert alone.names == ("length", "last token (12 levels)") and alone.values.shape[1] == 1 + 6 + 12
    assert together.names == ("length",) and together.values.shape[1] == 2
    token = np.r_[np.zeros(20, int), np.ones(20, int), np.arange(2, 22)]
    design = nuisance_design(table(length=np.full(60, 9), token=token))
    assert design.names == ("last token (2 levels)",)
    assert design.values.shape[1] == 3
    assert nuisance_design(table(length=np.full(60, 9), token=token), least=21).names == ()
    surprisal = np.random.default_rng(2).exponential(size=60)
    design = nuisance_design(rows(), ("domain",), {"surprisal": surprisal, "the same everywhere": np.ones(60)})
    assert design.names == ("length", "surprisal", "domain (2 levels)")
    assert design.predicted(surprisal[:, None])[:, 0] == pytest.approx(surprisal)
    design = nuisance_design(table(length=np.full(12, 7)))
    assert design.names == ()
    assert design.predicted(np.arange(12.0)[:, None]) == pytest.approx(np.full((12, 1), 5.5))
    columns = np.random.default_rng(3).standard_normal((9, 3))
    columns = np.column_stack([columns, columns[:, 0] + columns[:, 1]])
    basis, combined = orthonormal(columns)
    assert basis.shape == (9, 3) and basis.T @ basis == pytest.approx(np.eye(3), abs=1e-12)
    assert columns @ combined == pytest.approx(basis)
    assert orthonormal(np.zeros((9, 2)))[0].shape == (9, 0)


def test_positions_are_levels_in_sequences_and_the_length_in_texts():
    n_sequences, per_sequence = 10, 4
    position = np.tile(np.arange(per_sequence), n_sequences)
    columns = {
        "prompt": np.repeat(np.arange(n_sequences), per_sequence), "position": position,
        "length": np.full(40, 4), "token": np.zeros(40, int),
    }  # fmt: skip
    design = nuisance_design(Table(columns, dict.fromkeys(columns, "1")))
    assert design.names == ("position (4 levels)",)
    squares = np.square(position)[:, None].astype(float)
    assert design.predicted(squares) == pytest.approx(squares, abs=1e-12)
    assert nuisance_design(rows()).names[0] == "length"
    assert "position" not in nuisance_design(rows()).names
