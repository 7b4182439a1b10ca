"""What the networks of a sweep look like inside: each read by the same probes, and settings compared over seeds.

Records lie in `<out>/records`; one that is there is not made again. The comparison holds every setting against its
reference, with the seeds of each pooled.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.records.record import RunRecord
from interp.running.several_models import RunOutcome, run_many
from interp.running.study import compare
from interp.system.progress import stage
from interp.system.threads import one_thread

from .sweep import Cell


def probe_sweep(
    swept: Sequence[Cell], options: Mapping[str, Any], out: Path, quiet: bool
) -> tuple[list[RunOutcome], RunRecord | None]:
    """What became of reading every network that was trained, and their comparison; None where fewer than two were read.

    `options` are keywords of `interp.run`. A network that cannot be read stops nothing.
    """
    trained = [(cell, seed, str(training.folder)) for cell in swept for seed, training in cell.finished.items()]
    outcomes: list[RunOutcome] = []
    for i, (*_, folder) in enumerate(trained):
        with stage(f"network {i + 1} of {len(trained)}"), one_thread():
            outcomes += run_many([folder], options=options, out=out / "records", quiet=quiet).outcomes
    read = [(*named, each.record) for named, each in zip(trained, outcomes, strict=True) if each.record is not None]
    if len(read) < 2:
        return outcomes, None
    comparison = compare(
        [record for *_, record in read],
        labels=[f"{cell.label}, seed {seed}" for cell, seed, *_ in read],
        groups=[cell.label for cell, *_ in read],
        against=[cell.against for cell, *_ in read],
        out=out,
        reuse=True,
    )
    return outcomes, comparison
