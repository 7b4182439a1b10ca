"""Two captures against one another."""

import numpy as np


def assert_captures_agree(one, other, **close):
    """Every array and column as near as `close` says; counts and words, and all where it says nothing, bit for bit."""
    assert one.arrays.keys() == other.arrays.keys() and one.tables.keys() == other.tables.keys()
    for need, reduced in one.arrays.items():
        for name, array in reduced.items():
            _agree(array, other.reduced(need)[name], {} if name == "count" else close, f"{need} {name}")
    for at, table in one.tables.items():
        assert table.units == other.tables[at].units
        for name, column in table.columns.items():
            _agree(column, other.tables[at][name], close if column.dtype.kind == "f" else {}, f"{at} {name}")


def _agree(one, other, close, what):
    if close:
        np.testing.assert_allclose(other, one, **close, err_msg=what)
    else:
        np.testing.assert_array_equal(other, one, strict=one.dtype.kind not in "OU", err_msg=what)
