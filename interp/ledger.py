"""The ledger: every claim of a paper beside what is measured for it here, each with its outcome and the rule behind it.

`ledger.json` holds everything the page shows, so that the page can be drawn again from it alone. Records that answer
claims are named by their folders relative to the ledger's.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from interp.claims import PaperValue, Scale
from interp.errors import RecordError
from interp.record import ScalarFile
from interp.registry import load_entry
from interp.rules import OUTCOMES, Outcome

FORMAT = 1
LEDGER_NAME = "ledger.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Strict):
    """One measured number: where it stands, whose it is, and what it is; None where there is none."""

    source: str
    of: str
    field: str
    table: str = ""
    where: dict[str, str | int | float] = {}
    models: list[tuple[str, str]] = []
    scalar: ScalarFile | None = None


class JudgedPart(_Strict):
    """A part of a claim: its numbers, the rule in words, and the outcome; None where it is only shown."""

    label: str
    numbers: list[Number]
    kind: str = ""
    rule: str = ""
    p_corrected: float | None = None
    outcome: Outcome | None = None
    why: str = ""


class Cell(_Strict):
    """What came of a claim for one model; of none in particular where `model` is empty."""

    model: str = ""
    outcome: Outcome
    why: str = ""
    parts: list[JudgedPart] = []


class Row(_Strict):
    """One claim."""

    number: int
    title: str
    says: str
    paper: list[PaperValue]
    measure: str
    here: str
    cells: list[Cell]


class SourceFile(_Strict):
    """A run or study: how it is repeated, its record's folder, or why there is none."""

    name: str
    title: str
    kind: Literal["run", "study"]
    model: str = ""
    record: str = ""
    command: str = ""
    spec_hash: str = ""
    models: list[tuple[str, str]] = []
    reason: str = ""
    failed: bool = False


class PaperFile(_Strict):
    """A paper's rows, and the sources that answer them."""

    name: str
    title: str
    citation: str
    note: str = ""
    models: list[str] = []
    sources: list[SourceFile]
    rows: list[Row]

    @property
    def counts(self) -> dict[Outcome, int]:
        """How often each outcome occurs, over claims and models."""
        counted = Counter(cell.outcome for row in self.rows for cell in row.cells)
        return {outcome: counted[outcome] for outcome in OUTCOMES}


class LedgerFile(_Strict):
    """The content of `ledger.json`."""

    format: Literal[1] = FORMAT
    created: str
    scale: Scale
    command: str
    papers: list[PaperFile]
    environment: dict[str, Any]

    @property
    def failures(self) -> list[SourceFile]:
        """Sources that should have worked and did not."""
        return [source for paper in self.papers for source in paper.sources if source.failed]


def write_ledger(ledger: LedgerFile, folder: Path) -> Path:
    """Write `ledger.json` and its page into a folder, each whole or not at all; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(finite(ledger.model_dump()), indent=1, ensure_ascii=False, allow_nan=False)
    draft = folder / f".{LEDGER_NAME}.writing"
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(folder / LEDGER_NAME)
    return show_ledger(folder)


def show_ledger(path: str | Path) -> Path:
    """Draw the page of a ledger from its folder (or its `ledger.json`) and return its path."""
    folder = ledger_folder(Path(path))
    return load_entry("report", "ledger")(read_ledger(folder), folder)


def ledger_folder(path: Path) -> Path:
    return path.parent if path.name == LEDGER_NAME else path


def is_ledger(path: Path) -> bool:
    """Whether a folder, or a file in it, holds a ledger rather than a run."""
    return (ledger_folder(path) / LEDGER_NAME).is_file()


def read_ledger(path: str | Path) -> LedgerFile:
    """Read a ledger back. Raises `RecordError` for a missing, damaged, edited or newer one, naming what is wrong."""
    folder = ledger_folder(Path(path))
    asked = f"the ledger {folder}"
    try:
        raw = json.loads((folder / LEDGER_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        fix = "Give the folder that `interp replicate` printed."
        raise RecordError(asked=asked, found=f"there is no {LEDGER_NAME} in it", fix=fix) from error
    except (OSError, ValueError) as error:
        fix = "The file is damaged or was edited; the same `interp replicate` writes it again."
        raise RecordError(asked=asked, found=f"{LEDGER_NAME} cannot be read ({error})", fix=fix) from error
    version = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > FORMAT:
        found = f"it has format {version}, this version reads up to {FORMAT}"
        raise RecordError(asked=asked, found=found, fix="Open it with a newer interp.")
    try:
        return LedgerFile.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or LEDGER_NAME
        fix = "The file was edited or written by another program; the same `interp replicate` writes it again."
        raise RecordError(asked=asked, found=f"{where}: {first['msg']}", fix=fix) from error


def finite(value: Any) -> Any:
    """Plain JSON values with None for what JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
