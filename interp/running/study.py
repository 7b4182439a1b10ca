"""Carrying out a study: its work, its record, its page."""

import time
from collections.abc import Callable
from pathlib import Path

from interp.records.record import RunRecord, finished_record, waiting_for_lock, written
from interp.records.unfinished import PARTIAL, refuse_unwritable
from interp.study import Study
from interp.system.progress import reporting
from interp.system.threads import one_thread


def run_study(
    study: Study,
    *,
    out: str | Path | None = "runs",
    report: bool = True,
    reuse: bool = False,
    is_same: Callable[[RunRecord], bool] = lambda record: True,
    quiet: bool = False,
) -> RunRecord:
    """Carry out a study and leave a record and its page under `out`; `None` writes nothing but unfinished work.

    Unfinished work lies in `<out>/.partial/<hash of what was asked>`, so the same call resumes it. With `reuse`
    a finished record of it in `out` stands for it, where `is_same` says so: what was asked does not tell which weights
    lay in a folder. Where another process is at the same study in the same folder, this one waits and returns what that
    one leaves.
    """
    home = Path(out or "runs")
    found = finished_record(study.hash, home, is_same) if reuse and out is not None else None
    if found is not None:
        return found
    refuse_unwritable(home)
    with waiting_for_lock(home, study.hash, f"carrying out {study.name}") as theirs:
        if theirs is not None:
            record = theirs
        else:
            began = time.monotonic()  # not the clock, which may be set back
            with reporting(study.name.replace("_", " "), quiet) as progress, one_thread():
                findings = study.measure(home / PARTIAL / study.hash, progress)
            record = RunRecord(
                spec=study.spec | {"command": study.command},
                spec_hash=study.hash,
                timings={"study": round(time.monotonic() - began, 4)},
                findings={study.name: findings},
                parameters={study.name: study.parameters()},
            )
            if out is not None:
                record = written(record, home, study.name)
    if out is not None and report:
        record.show()
    return record
