"""Tables in parquet files, as they were written: neither the name of a folder nor what pandas noted is part of one.

A file of a hundred kilobytes can unfold to a hundred gigabytes. How many rows it has stands at its end and is looked at
first; how large they are shows while they are read, a thousand at a time.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow

MOST_ROWS, MOST_BYTES = 10_000_000, 4 * 2**30
LIFTED = "INTERP_LARGE_TABLES"
"""The variable that, set to 1, lifts both bounds."""

_AT_ONCE = 1024


def read_rows(source: Path | bytes) -> "pyarrow.Table":
    """The table of one file, or of its bytes; `ValueError` where it unfolds to more than the bounds."""
    import pyarrow
    from pyarrow import parquet

    given = pyarrow.BufferReader(source) if isinstance(source, bytes) else source
    with parquet.ParquetFile(given, page_checksum_verification=True) as file:
        n_rows, is_bounded = file.metadata.num_rows, os.environ.get(LIFTED) != "1"
        if is_bounded and n_rows > MOST_ROWS:
            raise ValueError(f"it unfolds to {n_rows:,} rows; {LIFTED}=1 reads more than {MOST_ROWS:,}")
        batches, n_bytes = [], 0
        for batch in file.iter_batches(_AT_ONCE):
            batches.append(batch)
            n_bytes += batch.nbytes
            if is_bounded and n_bytes > MOST_BYTES:
                raise ValueError(f"it unfolds to more than {MOST_BYTES:,} bytes; {LIFTED}=1 reads it all the same")
        return pyarrow.Table.from_batches(batches, file.schema_arrow).combine_chunks()


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Its columns by name; what pandas noted beside them says nothing that a damaged file could not get wrong."""
    frame = read_rows(path).to_pandas(ignore_metadata=True)
    return {name: frame[name].to_numpy() for name in frame.columns}
