"""Tables are read as they were written, and no further than a bound, however small the file is."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from interp.errors import PromptError
from interp.prompting.files import read_prompts
from interp.records import parquet_files
from interp.records.parquet_files import LIFTED, read_columns, read_rows


def bomb(path, n_rows, text="x"):
    """A small file of one text so many times."""
    column = pyarrow.DictionaryArray.from_arrays(np.zeros(n_rows, dtype=np.int32), [text])
    parquet.write_table(pyarrow.table({"text": column.cast(pyarrow.string()) if n_rows < 5000 else column}), path)
    return path


def test_a_small_file_of_many_rows_is_refused_by_its_end_alone(tmp_path, monkeypatch):
    path = bomb(tmp_path / "p.parquet", 20_000_000)
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", None)  # nothing of it is read
    with pytest.raises(PromptError, match="unfolds to 20,000,000 rows"):
        read_prompts(path)


def test_few_rows_that_unfold_to_many_bytes_are_refused_and_the_variable_lifts_it(tmp_path, monkeypatch):
    path = bomb(tmp_path / "p.parquet", 4000, "x" * 10_000)
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(parquet_files, "MOST_BYTES", 10_000_000)
    for source in (path, path.read_bytes()):
        with pytest.raises(ValueError, match=f"more than 10,000,000 bytes; {LIFTED}=1"):
            read_rows(source)
    monkeypatch.setenv(LIFTED, "1")
    assert read_rows(path).num_rows == 4000


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_a_table_within_the_bounds_is_read_as_it_was_written(tmp_path, n):
    path = tmp_path / "t.parquet"
    table = pyarrow.table({"a": np.arange(n), "b": [f"{i}" for i in range(n)], "c": np.arange(n) / 7})
    parquet.write_table(table, path)
    assert read_rows(path).equals(table) and read_columns(path)["a"].tolist() == list(range(n))
