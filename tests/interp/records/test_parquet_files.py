"""Tables are read as they were written."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from interp.records.parquet_files import read_columns, read_rows


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_a_table_is_read_as_it_was_written(tmp_path, n):
    path = tmp_path / "t.parquet"
    table = pyarrow.table({"a": np.arange(n), "b": [f"{i}" for i in range(n)], "c": np.arange(n) / 7})
    parquet.write_table(table, path)
    assert read_rows(path).equals(table) and read_columns(path)["a"].tolist() == list(range(n))
