"""The table of findings layer by layer holds every number of every scalar, and NaN for what is missing."""

import numpy as np
import pytest
from interp.probes.measures.profiles import profile_table

from interp.findings import Null, Scalar

NAN = np.nan


def scalar(value, interval=None, null=None, p=None, unit="bits"):
    return Scalar(
        value, unit, interval=interval, interval_method="x" if interval else "",
        interval_reason="" if interval else "none", null=null, null_reason="" if null else "none", p=p,
    )  # fmt: skip


def test_every_number_stands_in_its_column_and_layer():
    whole = scalar(2.0, (1.5, 2.5), Null("n", 0.5, (0.1, 0.9)), 0.03)
    table = profile_table(
        {"x": [whole, scalar(3.0)], "y": [scalar(7.0, unit="1"), scalar(8.0, unit="1")]}, [10, 20], "said"
    )
    expected = {
        "layer": [0, 1], "n_distinct_rows": [10, 20], "x": [2, 3], "x_low": [1.5, NAN], "x_high": [2.5, NAN],
        "x_null": [0.5, NAN], "x_null_low": [0.1, NAN], "x_null_high": [0.9, NAN], "x_p": [0.03, NAN], "y": [7, 8],
        "y_low": [NAN, NAN], "y_high": [NAN, NAN], "y_null": [NAN, NAN], "y_null_low": [NAN, NAN],
        "y_null_high": [NAN, NAN],
    }  # fmt: skip
    assert list(table.columns) == list(expected) and table.caption == "said"
    for name, values in expected.items():
        np.testing.assert_array_equal(table[name], values, err_msg=name)
    assert {table.units[name] for name in table.columns if name.startswith("x") and name != "x_p"} == {"bits"}
    assert (table.units["x_p"], table.units["y_high"], table.units["layer"]) == ("probability", "1", "layer")


def test_a_p_of_nothing_is_a_p():
    assert profile_table({"x": [scalar(1.0, p=0.0)]}, [3], "")["x_p"] == pytest.approx([0])
