"""Tables in parquet files, as they were written: neither the name of a folder nor what pandas noted is part of one."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow


def read_rows(path: Path) -> "pyarrow.Table":
    """The table of one file; older versions of pyarrow take a folder called `seed=3` for one more column."""
    from pyarrow import parquet

    return parquet.read_table(path, partitioning=None)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Its columns by name; what pandas noted beside them says nothing that a damaged file could not get wrong."""
    frame = read_rows(path).to_pandas(ignore_metadata=True)
    return {name: frame[name].to_numpy() for name in frame.columns}
