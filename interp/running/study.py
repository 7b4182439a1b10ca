"""Running a study: its work, its record, its page. `compare` runs the study `comparison`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from interp.records.record import RunRecord, finished_record, waiting_for_lock, written
from interp.records.unfinished import PARTIAL, refuse_unwritable
from interp.running.spec import make_study
from interp.study import Study
from interp.system.plain_numbers import path as plain_path
from interp.system.progress import reporting
from interp.system.threads import one_thread


def run_study(
    study: Study,
    *,
    out: str | Path | None = "runs",
    reuse: bool = False,
    is_same: Callable[[RunRecord], bool] = lambda record: True,
    quiet: bool = False,
) -> RunRecord:
    """Run a study and write a record and its page to `out`; `None` writes only unfinished work.

    Unfinished work is in `<out>/.partial/<hash>`, so the same call resumes it. With `reuse` a finished record in `out`
    is returned if `is_same` accepts it: the hash does not cover weights in a folder. If another process runs the same
    study in the same folder, this one waits and returns its record.
    """
    home = plain_path("runs" if out is None else out)
    found = finished_record(study.hash, home, is_same) if reuse and out is not None else None
    if found is not None:
        return found
    refuse_unwritable(home)
    with waiting_for_lock(home, study.hash, f"carrying out {study.name}", is_same) as theirs:
        if theirs is not None:
            record = theirs
        else:
            began = time.monotonic()
            with reporting(study.name.replace("_", " "), quiet) as progress, one_thread():
                findings = study.measure(home / PARTIAL / study.hash, progress)
            record = RunRecord(
                spec=study.spec | {"command": study.command},
                spec_hash=study.hash,
                timings={"study": round(time.monotonic() - began, 4)},
                findings={study.name: replace(findings, parameters=study.parameters())},
            )
            if out is not None:
                record = written(record, home, study.name)
    if out is not None:
        record.show()
    return record


def compare(
    runs: Sequence[RunRecord | str | Path],
    *,
    labels: Sequence[str] = (),
    groups: Sequence[str] = (),
    against: Sequence[str] = (),
    out: str | Path | None = "runs",
    reuse: bool = False,
    quiet: bool = True,
) -> RunRecord:
    """Compare runs number by number, on a page of its own.

    Args:
        runs: Records, or their folders. The first is the reference.
        labels: Names of the runs.
        groups: A group name for each run. Runs of one group are pooled, as repetitions.
        against: For each run, the group that its own group is compared with, if that is not the first.
        out: Folder that receives the folder of the comparison; nothing is written if None.
        reuse: Whether to return a comparison of the same runs that `out` already holds.
        quiet: Whether to print no progress.

    Returns:
        The record of the comparison.

    Raises:
        RecordError: A run cannot be read, or was never saved to a folder.
        UsageError: There are fewer than two runs, they have nothing in common, or labels or groups do not fit them.

    Examples:
        >>> comparison = interp.compare(["runs/first", "runs/second"], out=None)
        >>> list(comparison.findings)
        ['comparison']
    """
    paths = [str(run.folder if isinstance(run, RunRecord) else run) for run in runs]
    asked = {"runs": paths, "labels": labels, "groups": groups, "against": against}
    study = make_study("comparison", {name: tuple(values) for name, values in asked.items()})
    return run_study(study, out=out, reuse=reuse, quiet=quiet)
