"""Tables in parquet files, as they were written: neither the name of a folder nor what pandas noted is part of one."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow


def read_rows(source: Path | bytes) -> "pyarrow.Table":
    """The table of one file, or of its bytes."""
    import pyarrow
    from pyarrow import parquet

    given = pyarrow.BufferReader(source) if isinstance(source, bytes) else source
    with parquet.ParquetFile(given, page_checksum_verification=True) as file:
        return file.read().combine_chunks()


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Its columns by name; what pandas noted beside them says nothing that a damaged file could not get wrong."""
    frame = read_rows(path).to_pandas(ignore_metadata=True)
    return {name: frame[name].to_numpy() for name in frame.columns}
