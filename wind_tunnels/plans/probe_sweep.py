"""What the networks of a sweep look like inside: each read by the same probes, and settings compared over seeds.

Records lie in `<out>/records`; one that is there is not made again. The comparison holds every setting against its
reference, with the seeds of each pooled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.running.choose_probes import choose_probes
from interp.running.compare import compare
from interp.running.several_models import RunOutcome, run_many
from interp.system.progress import stage

from .sweep import Cell

RECORDS = "records"


@dataclass(frozen=True)
class Probed:
    """One network of a sweep and what became of reading it."""

    name: str
    cell: Cell
    seed: int
    outcome: RunOutcome


def probe_options(
    probes: Sequence[str], settings: Mapping[str, Mapping[str, Any]], n_pool: int | None
) -> dict[str, Any]:
    """How every network is read, as keywords of `interp.run`; unknown probes and settings are refused here."""
    choose_probes(probes, settings)
    return {"probes": probes, "settings": settings, "n_pool": n_pool}


def probe_sweep(swept: Sequence[Cell], options: Mapping[str, Any], out: Path, quiet: bool = True) -> Iterator[Probed]:
    """Read every network that was trained. One that fails is reported and stops nothing."""
    trained = [(cell, *each) for cell in swept for each in cell.finished.items()]
    for i, (cell, seed, training) in enumerate(trained):
        with stage(f"network {i + 1} of {len(trained)}"):
            many = run_many([str(training.folder)], options=options, out=out / RECORDS, quiet=quiet)
        yield Probed(training.folder.name, cell, seed, many.outcomes[0])


def compare_cells(probed: Sequence[Probed], out: Path) -> Path | None:
    """The page that compares the settings of a sweep; None where fewer than two networks were read."""
    read = [(each, each.outcome.record) for each in probed if each.outcome.record is not None]
    if len(read) < 2:
        return None
    record = compare(
        [record for _, record in read],
        labels=[f"{each.cell.label}, seed {each.seed}" for each, _ in read],
        groups=[each.cell.label for each, _ in read],
        against=[each.cell.against for each, _ in read],
        out=out,
        reuse=True,
    )
    return None if record.path is None else record.path / "report.html"
