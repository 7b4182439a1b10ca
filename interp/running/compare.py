"""`interp.compare`: several records on one page. What is compared, and how, is the study `comparison`."""

from collections.abc import Sequence
from pathlib import Path

from interp.errors import RecordError
from interp.records.record import RunRecord
from interp.running.spec import make_study
from interp.running.study import run_study


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
        out: Folder for the comparison; nothing is written if None.
        reuse: Whether to return a comparison of the same runs that `out` already holds.
        quiet: Whether to print no progress.

    Returns:
        The record of the comparison.

    Raises:
        RecordError: A run cannot be read.
        UsageError: The runs have nothing in common, or labels or groups do not fit them.

    Examples:
        >>> comparison = interp.compare(["runs/first", "runs/second"], out=None)
        >>> comparison.status
        'done'
    """
    paths = [str(_path(run)) for run in runs]
    asked = {"runs": paths, "labels": labels, "groups": groups, "against": against}
    study = make_study("comparison", {name: tuple(values) for name, values in asked.items()})
    return run_study(study, out=out, reuse=reuse, quiet=quiet)


def _path(run: RunRecord | str | Path) -> Path:
    if not isinstance(run, RunRecord):
        return Path(run)
    if run.path is None:
        raise RecordError(
            asked=f"comparing the run of {run.model.get('name', 'a model')}",
            found="it was not saved to a folder, and a comparison lists the folders of its records",
            fix="Run with out=FOLDER, or record.save(folder) first.",
        )
    return run.path
