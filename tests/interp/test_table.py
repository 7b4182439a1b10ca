"""Tables: the columns of a number, their units and their order, and what is refused."""

import numpy as np
import pytest

from interp.table import LABEL, Table, number_columns


@pytest.mark.parametrize("units", [{"x": "bits"}, {"x": "bits", "y": "1", "z": "1"}])
def test_a_column_without_a_unit_and_a_unit_without_a_column_are_faults(units: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="columns"):
        Table({"x": np.ones(2), "y": np.ones(2)}, units)


def test_tables_are_made_of_rows_parts_and_numbers() -> None:
    rows = [{"p": 0.5, "x": 1.0, "x_p": 0.1, "x_low": 0.0, "name": "a", "left_out": 1}]
    table = Table.from_rows(rows, {"name": LABEL, "x": "bits", "p": "probability"})
    assert list(table.columns) == ["name", "x", "x_low", "x_p", "p"]
    assert Table.from_rows([], {"name": LABEL}).n_rows == 0
    parts = [{"name": np.full(2, "b"), "x": np.arange(2.0)}, {"name": np.full(1, "a"), "x": np.array([5.0])}]
    table = Table.stacked(parts, {"name": LABEL, "x": "bits", "unused": "1"})
    assert [(name, mine["x"].tolist()) for name, mine in table.groups("name")] == [("b", [0, 1]), ("a", [5])]
    assert number_columns("x", 1.0) == {"x": 1.0}
    assert number_columns("x", 1.0, (0.0, 2.0), (0.5, 0.4, 0.6), 0.01) == {
        "x": 1.0, "x_low": 0.0, "x_high": 2.0, "x_null": 0.5, "x_null_low": 0.4, "x_null_high": 0.6, "x_p": 0.01,
    }  # fmt: skip
    columns = number_columns("x", np.zeros(3), np.array([[1.0, 2, 3], [4, 5, 6]]))
    np.testing.assert_array_equal(columns["x_high"], [4, 5, 6])
    columns = {"x": np.ones(2), "x_low": np.ones(2), "x_null_high": np.ones(2), "x_p": np.ones(2), "n_low": np.ones(2)}
    table = Table(columns, {"x": "bits", "n_low": "rows"})
    assert dict(table.units) == {
        "x": "bits",
        "x_low": "bits",
        "x_null_high": "bits",
        "x_p": "probability",
        "n_low": "rows",
    }
