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
    """The record that compares these runs, and its page under `out`; the first run is the reference.

    `labels` name the runs; runs of one of the `groups` (a name for each run) are pooled, as repetitions of one thing,
    and `against` names for each run the group that its own is compared with, where that is not the first. With `reuse`
    a comparison of just these runs that lies in `out` stands for itself.

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
            found="it was not written to a folder, and a comparison names the records it was made of",
            fix="Run with out=FOLDER, or record.save(folder) first.",
        )
    return run.path
