"""Rows that are kept only while they are narrow."""

import numpy as np
import pytest

from interp.reductions import NarrowRows, Rows


@pytest.mark.parametrize("width", [4, 5])
def test_narrow_rows_are_kept_as_rows_are(width):
    rows = np.random.default_rng(0).standard_normal((6, width))
    narrow, plain = NarrowRows(max_width=5).starter(np.arange(4))(), Rows().starter(np.arange(4))()
    for part in (rows[:2], rows[2:]):
        narrow.add(part, np.arange(len(part)))
        plain.add(part, np.arange(len(part)))
    np.testing.assert_array_equal(narrow.result()["rows"], plain.result()["rows"])


def test_wide_rows_are_counted_and_not_held():
    wide = np.zeros((1000, 600), dtype=np.float32)
    state = NarrowRows().starter(np.arange(1000))()
    state.add(wide, np.arange(1000))
    kept = state.result()["rows"]
    assert kept.shape == (1000, 0) and kept.base is None
    assert all(part.base is None for part in state.parts)
