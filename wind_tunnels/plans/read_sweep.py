"""What the networks of a sweep look like inside: each read by the same probes, and settings compared over seeds.

Records lie in `<out>/records`; one that is there is not made again. The comparison holds every setting against its
reference, with the seeds of each pooled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.running.choose_probes import choose_probes
from interp.running.compare import compare
from interp.running.several_models import RunOutcome, run_many

from .sweep import Cell

RECORDS = "records"


@dataclass(frozen=True)
class Measuring:
    """Which probes read the networks of a sweep, and how many sequences of the task."""

    probes: Sequence[str]
    settings: Mapping[str, Mapping[str, Any]]
    n_pool: int | None = None

    @classmethod
    def of(cls, probes: Sequence[str], settings: Mapping[str, Mapping[str, Any]], n_pool: int | None) -> "Measuring":
        """Refuses unknown probes and settings, before anything is trained."""
        choose_probes(probes, settings)
        return cls(probes, settings, n_pool)


@dataclass(frozen=True)
class Measured:
    """One network of a sweep and what became of its reading."""

    cell: Cell
    seed: int
    outcome: RunOutcome


def measure_cells(
    swept: Sequence[Cell], asked: Measuring, out: Path, said: Callable[[int, int, str], None] | None
) -> list[Measured]:
    """Read every finished network; `said` hears of each. One that fails is reported and stops nothing."""
    options = {"probes": asked.probes, "settings": asked.settings, "n_pool": asked.n_pool}
    finished = [(cell, seed, done) for cell in swept for seed, done in cell.done.items()]
    found = []
    for i, (cell, seed, done) in enumerate(finished):
        many = run_many([str(done.folder)], options=options, out=out / RECORDS, quiet=True)
        found.append(Measured(cell, seed, many.outcomes[0]))
        if said is not None:
            said(i + 1, len(finished), done.folder.name)
    return found


def compare_cells(measured: Sequence[Measured], out: Path) -> Path | None:
    """The page that compares the settings of a sweep; None where fewer than two networks were read."""
    read = [(each, each.outcome.record) for each in measured if each.outcome.record is not None]
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
