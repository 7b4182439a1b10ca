"""The ledger: every claim of a paper with its measured numbers, rule and outcome.

The page is drawn from `ledger.json` alone. Records are named by their folders, relative to the ledger's.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from interp.ledger.claims import ClaimWords, Place, Scale
from interp.ledger.rules import OUTCOMES, Outcome
from interp.records.versioned_json import (
    REMOVED_COLUMNS,
    KeptEnvironment,
    KeptScalar,
    Strict,
    as_text,
    read_versioned,
)
from interp.registry import load_entry
from interp.system.digest import digest_of
from interp.system.locks import one_at_a_time
from interp.system.whole_files import begins_with, telling, writing

FORMAT = 1
LEDGER_NAME = "ledger.json"
BEYOND = "Claims beyond the fifty"
"""The heading of claims that are not on the list of fifty."""


class MeasuredNumber(Place):
    """One measured number: its place, its models, and its value; None if there is none.

    `trainings` counts the trained wind tunnels behind its interval. `controls` are the essential ones, with words.
    """

    models: list[tuple[str, str]] = Field(default=[])
    scalar: KeptScalar | None = None
    trainings: int | None = None
    controls: list[tuple[str, KeptScalar]] = Field(default=[])

    @field_validator("where")
    @classmethod
    def _without_removed_columns(cls, where: dict[str, str | int | float]) -> dict[str, str | int | float]:
        """Drop columns of earlier versions, such as `what` in the table `movement`."""
        return {column: value for column, value in where.items() if REMOVED_COLUMNS.get(column) != value}


class JudgedPart(Strict):
    """A part of a claim: its numbers, the rule in words, and the outcome; None if it is only shown."""

    label: str
    numbers: list[MeasuredNumber]
    kind: str = ""
    rule: str = ""
    p_corrected: float | None = None
    outcome: Outcome | None = None
    why: str = ""


class ClaimOutcome(Strict):
    """The outcome of a claim for one model, or for none; `earlier` is that of its first rule, if replaced."""

    model: str = ""
    outcome: Outcome
    why: str = ""
    parts: list[JudgedPart] = Field(default=[])
    earlier: "ClaimOutcome | None" = None


class ClaimRow(ClaimWords):
    """One claim with its outcome for each model; `revised` says when and why its rule changed or it was added."""

    cells: list[ClaimOutcome]
    revised: str = ""


class SourceFile(Strict):
    """A run or study: its command and the folder of its record, or the reason why there is none."""

    name: str
    title: str
    kind: Literal["run", "study"]
    model: str = ""
    record: str = ""
    command: str = ""
    spec_hash: str = ""
    models: list[tuple[str, str]] = Field(default=[])
    reason: str = ""
    failed: bool = False


class PaperFile(Strict):
    """A paper's rows and sources."""

    name: str
    title: str
    citation: str
    note: str = ""
    models: list[str] = Field(default=[])
    sources: list[SourceFile]
    rows: list[ClaimRow]

    @property
    def parts(self) -> dict[str, "list[ClaimRow]"]:
        """The rows by heading; those of the list of fifty have none."""
        apart = {"": [row for row in self.rows if not row.is_beyond], BEYOND: [r for r in self.rows if r.is_beyond]}
        return {heading: rows for heading, rows in apart.items() if rows}


def counts(rows: Sequence[ClaimRow]) -> dict[Outcome, int]:
    """The number of each outcome, over claims and models."""
    counted = Counter(cell.outcome for row in rows for cell in row.cells)
    return {outcome: counted[outcome] for outcome in OUTCOMES}


class LedgerFile(Strict):
    """The content of `ledger.json`."""

    format: Literal[1] = FORMAT
    created: str
    scale: Scale
    command: str
    papers: list[PaperFile]
    environment: KeptEnvironment

    @property
    def failures(self) -> list[SourceFile]:
        """Sources that should have worked and did not."""
        return [source for paper in self.papers for source in paper.sources if source.failed]


def write_ledger(ledger: LedgerFile, folder: Path) -> Path:
    """Write `ledger.json` and its page into a folder, each whole or not at all; returns the path of the page."""
    with one_at_a_time(folder.with_name(f".interp-{digest_of(folder.name)}.lock"), f"writing the ledger {folder}"):
        again = "Make room; the same command then finds what it has measured."
        is_ours = begins_with('{\n "format": ')
        with telling(f"writing the ledger {folder}", again), writing(folder / LEDGER_NAME, is_ours) as draft:
            draft.write_text(as_text(ledger), encoding="utf-8")
        return show_ledger(folder)


def show_ledger(path: str | Path) -> Path:
    """Draw the page of a ledger from its folder (or its `ledger.json`) and return its path."""
    folder = ledger_folder(Path(path))
    return load_entry("report", "ledger")(read_ledger(folder), folder)


def ledger_folder(path: Path) -> Path:
    return path.parent if path.name in (LEDGER_NAME, "ledger.html") else path


def is_ledger(path: Path) -> bool:
    """Whether a folder, or a file in it, holds a ledger rather than a run."""
    return (ledger_folder(path) / LEDGER_NAME).is_file()


def read_ledger(path: str | Path) -> LedgerFile:
    """Read a ledger; `RecordError` if it is missing, damaged, edited or newer."""
    folder = ledger_folder(Path(path))
    return read_versioned(
        folder / LEDGER_NAME, LedgerFile, FORMAT, asked=f"the ledger {folder}",
        written_by="Give the folder that `interp replicate` printed.",
        again="the same `interp replicate` writes it again",
    )  # fmt: skip
