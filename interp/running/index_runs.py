"""One page over all records of a folder."""

from pathlib import Path

from interp.records.index import list_records
from interp.registry import load_entry


def index_runs(folder: str | Path = "runs") -> Path:
    """Write `index.html` into a folder of records: model, probes, answers, when, disk; returns its path.

    Pages and comparisons are linked. What is damaged, or no record, is listed with the reason.

    >>> interp.index_runs("runs").name
    'index.html'
    """
    return load_entry("report", "index")(list_records(folder))
