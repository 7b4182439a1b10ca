"""The record of a run: `run.json` with tables and arrays beside it; the page is drawn from it alone.

A record is written whole or not at all. NaN and infinity are written as null and read as NaN.
"""

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.capture import FOREIGN
from interp.edits import KINDS
from interp.errors import Holding, InterpError, RecordError
from interp.findings import COLUMNS, Findings
from interp.formatting import last_part
from interp.records.headlines import contradictions, headlines, tried
from interp.records.run_file import FORMAT, FindingsFile, RunFile, TableFile
from interp.records.token_strip import TokenStrip, read_strips, write_strips
from interp.records.versioned_json import as_text, plain_json, read_versioned
from interp.settings import read_fields
from interp.statistics.possible import impossible
from interp.system.environment import environment
from interp.system.foreign_files import is_folder, read_columns, read_json, readable
from interp.system.locks import one_at_a_time
from interp.system.plain_numbers import path as plain_path
from interp.system.whole_files import file_names, shortened, telling, writing
from interp.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


CHANGED = "{}: all numbers describe the {} model, not the original."


@dataclass(frozen=True, eq=False, repr=False)
class RunRecord(Holding[str, Findings]):
    """One run: its specification, model and prompts, and its findings.

    `record["manifold"]` holds the findings of this probe, `findings` those of all probes, `shown` the prompts shown
    token by token. `path` is the folder on disk, None before it is saved. Times in `timings` are in seconds.

    >>> record = interp.open_run("runs/first")
    >>> list(record.findings)
    ['orthogonality']
    """

    _held, _kind = "findings", "probe of this record"

    spec: Mapping[str, Any]
    spec_hash: str
    timings: Mapping[str, float]
    findings: Mapping[str, Findings]
    model: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, Any] = field(default_factory=dict)
    selfcheck: tuple[Mapping[str, Any], ...] = ()
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    environment: Mapping[str, Any] = field(default_factory=environment)
    shown: tuple[TokenStrip, ...] = ()
    path: Path | None = None

    @property
    def parameters(self) -> dict[str, Mapping[str, Any]]:
        """The parameters of every probe."""
        return {name: found.parameters for name, found in self.findings.items()}

    @property
    def quantised(self) -> str:
        """How the weights are quantised; empty if they are not."""
        return str(self.model.get("stored_as") or self.model.get("quantisation") or "")

    @property
    def edits_in_words(self) -> str:
        """`ablate z at layer 3, heads 1, 2; ...`: the edits of the model; empty without edits."""
        return "; ".join(dict.fromkeys(map(_edit_in_words, self.spec.get("edits") or ())))

    @property
    def cautions(self) -> list[str]:
        """Warnings on all numbers: changes of the model, and few clusters."""
        model, window = self.model, self.spec.get("attention_window")
        edits = self.edits_in_words
        changes = [
            ("Quantised weights", "quantised", self.quantised),
            (f"Adapter {model.get('adapter')}", "adapted", model.get("adapter")),
            (f"Edits ({edits})", "edited", edits),
            (f"Every query sees the last {window} keys only", "restricted", window),
        ]
        found = [CHANGED.format(what, how) for what, how, is_so in changes if is_so]
        if FOREIGN in (lens := model.get("lens") or ""):
            found.append(f"Lens {lens}: what it decodes may not be what this model computes.")
        read = [self.prompts, *self.prompts.get("others", ())]
        for prompts in read:
            if caution := (prompts.get("clusters") or {}).get("caution", ""):
                found.append(f"“{prompts.get('name')}”: {caution}" if len(read) > 1 else caution)
        return [*dict.fromkeys(found)]

    @property
    def folder(self) -> Path:
        """The folder of the record; `RecordError` before it is saved, or where it was moved."""
        if self.path is None or not is_folder(self.path):
            raise RecordError(
                asked=f"the folder or page of the record of {self.model.get('name', 'a study')}",
                found=f"{self.path} was moved, or the working folder" if self.path else "it was not saved to a folder",
                fix="Use record.save(folder) first, record.write_page(path), or run with out=FOLDER.",
            )
        return self.path

    @property
    def page(self) -> Path:
        """The path of the page beside the record; `RecordError` before it is saved."""
        return self.folder / "report.html"

    def show(self) -> Path:
        """Render the page beside the record and return its path; `RecordError` before the record is saved."""
        return self.write_page(self.page)

    def write_page(self, path: str | Path) -> Path:
        """Render the page as one self-contained file; returns its path."""
        from interp.registry import entries, load_entry

        study = self.spec.get("study")
        return load_entry("report", study if study in entries("report") else "html")(self, plain_path(path))

    def figures(self, theme: Literal["light", "dark"] = "light") -> dict[str, "go.Figure"]:
        """The figures of all probes by `PROBE.FIGURE`, in the page's theme."""
        return {
            f"{probe}.{name}": figure
            for probe, found in self.findings.items()
            for name, figure in found.figures(theme).items()
        }

    def _repr_html_(self) -> str:
        from interp.registry import load_entry

        first = load_entry("report", "first_screen")(self)
        return f"{first}<details><summary>All headline numbers</summary>{super()._repr_html_()}</details>"

    def _table(self) -> tuple[str, Sequence[str], Sequence[Sequence[str]], str]:
        name = self.model.get("name") or self.spec.get("study") or "unnamed"
        n, unit = self.prompts.get("n"), self.prompts.get("unit", "prompt")
        read = f", {n:,} {unit}s of {self.prompts.get('name', '')}" if n else ""
        rows = [(probe, *row) for probe, found in self.findings.items() for row in found.rows_in_words(found.headline)]
        where = "Not written to a folder; `record.write_page(path)`"
        where = f"Written to {self.path}; `record.show()`" if self.path else where
        objections = [f"{h.name} {words}." for h in headlines(self.findings) for words in h.objections]
        sentences = " ".join([*objections, *contradictions(self.findings), tried(self.findings)])
        further = f"{sentences} {where} draws the page, `record[probe]` holds all numbers and tables."
        return f"{name}{read}", ("probe", *COLUMNS), rows, further

    def to_frame(self) -> "pandas.DataFrame":
        """Every number of every probe, one per row, as `Findings.to_frame` with the column `probe`."""
        import pandas

        frames = [f.to_frame().assign(probe=probe) for probe, f in self.findings.items() if f.scalars]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    def metrics(self) -> dict[str, float]:
        """Every finite number for an experiment tracker, such as `wandb.log(record.metrics())`.

        Names are `PROBE.NUMBER`, and the same with `.low`, `.high`, `.null` and `.p`.
        """
        found: dict[str, float] = {}
        for probe, findings in self.findings.items():
            for name, s in findings.scalars.items():
                numbers = s.columns("") | {"_p": math.nan if s.p is None else s.p}
                kept = {end: float(numbers[end]) for end in ("", "_low", "_high", "_null", "_p")}
                found |= {f"{probe}.{name}{end.replace('_', '.')}": x for end, x in kept.items() if math.isfinite(x)}
        return found

    def save(self, folder: str | Path) -> "RunRecord":
        """Write the record as `folder`, whole or not at all; returns the record with its path.

        Raises `RecordError` if the folder exists or cannot be written, or a number is impossible.
        """
        folder = plain_path(folder)
        fix = "Check free space and permissions there, or choose another folder with --out."
        with telling(f"writing the record to {folder}", fix), writing(folder) as draft:
            (draft / "tables").mkdir(parents=True)
            findings = {name: self._write_findings(name, f, draft) for name, f in self.findings.items()}
            shared = {name: getattr(self, name) for name in _SHARED}
            content = RunFile(status="done", **shared, findings=findings)
            (draft / "run.json").write_text(as_text(content), encoding="utf-8")
            if self.shown:
                write_strips(self.shown, draft)
            if self.spec.get("edits"):
                edits = json.dumps({"edits": self.spec["edits"]}, allow_nan=False)
                (draft / "edits.json").write_text(edits + "\n", encoding="utf-8")
        return replace(self, path=folder)

    write = save
    """Its name in earlier releases."""

    def _write_findings(self, probe: str, findings: Findings, draft: Path) -> FindingsFile:
        faults = impossible(findings)
        if faults:
            raise RecordError(
                asked=f"writing what {probe} found",
                found=f"impossible numbers: {'; '.join(faults)}",
                fix=f"This is a fault of the probe {probe}: report it. What was read of the model is kept: once the "
                "probe is fixed, the same command continues from there.",
            )
        tables = {}
        files = file_names(findings.tables)
        for name, table in findings.tables.items():
            path = f"tables/{probe}.{files[name]}.parquet"
            table.to_frame().to_parquet(draft / path, index=False)  # with the units as the `attrs` of the frame
            tables[name] = TableFile(path=path, units=dict(table.units), caption=table.caption)
        if findings.arrays:
            from safetensors.numpy import save

            arrays = {name: np.require(a, requirements="C") for name, a in findings.arrays.items()}
            # not `save_file`, whose files only their owner may read and whose errors are not the system's
            (draft / f"arrays.{probe}.safetensors").write_bytes(save(arrays))
        return FindingsFile(
            parameters=plain_json(dict(findings.parameters)),
            tables=tables,
            **{name: getattr(findings, name) for name in ("scalars", "notes", "headline", "controls", "facts")},
        )


_SHARED = tuple(name for name in RunFile.model_fields if name not in ("format", "status", "findings"))
"""The fields that `run.json` and a record share."""


def written(record: RunRecord, out: Path, name: str) -> RunRecord:
    """The record, written as `<out>/<name>-<time>`, with a counter if that is taken.

    If that fails, it is kept in the folder for temporary files, and the `RecordError` says where.
    """
    plain = "".join(c if c.isalnum() or c in "-_.@" else "-" for c in last_part(name))
    stem = f"{shortened(plain)}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = chain([stem], (f"{stem}-{n}" for n in count(2)))
    while True:
        folder = next(out / each for each in names if not (out / each).exists())
        try:
            return record.save(folder)
        except RecordError as error:
            if isinstance(error.__cause__, FileExistsError) and folder.exists():
                continue  # another process was faster
            try:
                refuge = record.save(Path(tempfile.mkdtemp(prefix="interp-")) / folder.name).path
            except (RecordError, OSError):
                raise error from None
            raise RecordError(
                asked=error.asked,
                found=f"{error.found}; what was measured is kept in {refuge}",
                fix=f"Free some space and move it; `interp report {refuge}` draws its page.",
            ) from error


def open_run(path: str | Path) -> RunRecord:
    """Read the record of a run.

    Args:
        path: Its folder, its `run.json` or its page; or a folder that holds this run alone.

    Returns:
        The record.

    Raises:
        RecordError: The record is missing, truncated, edited or of a newer version, or there are several.

    Examples:
        >>> record = interp.open_run("runs/first")
        >>> record.to_frame().shape[0] > 0
        True
    """
    folder = _folder_of(plain_path(path))
    content = read_versioned(
        folder / "run.json", RunFile, FORMAT, asked=f"the record {folder}",
        written_by="Give the folder that a run printed; it holds run.json.", again="repeat the run",
    )  # fmt: skip
    kept = {name: getattr(content, name) for name in _SHARED}
    kept["timings"] = {name: math.nan if x is None else x for name, x in content.timings.items()}
    return RunRecord(
        **kept | {"selfcheck": tuple(content.selfcheck)},
        findings={name: _read_findings(name, f, folder) for name, f in content.findings.items()},
        shown=read_strips(folder),
        path=folder,
    )  # fmt: skip


def _edit_in_words(kept: Mapping[str, Any]) -> str:
    """The text of an edit; for an unknown edit its kind."""
    try:
        cls = KINDS[kept["kind"]]
        known = {f.name: kept[f.name] for f in fields(cls) if f.name in kept}
        return str(cls(**read_fields(cls, cls.kind, known, from_words=False)))
    except (InterpError, KeyError, TypeError):
        return str(kept.get("kind"))


def _folder_of(folder: Path) -> Path:
    """The folder of a record, of its file, or of the only record in it; `RecordError` if there are several."""
    folder = folder.parent if folder.name in ("run.json", "report.html") else folder
    found = sorted(file.parent for file in folder.glob("[!.]*/run.json"))
    if (folder / "run.json").is_file() or not found:
        return folder
    if len(found) > 1:
        newest = max(found, key=lambda run: run.stat().st_mtime)
        raise RecordError(
            asked=f"the record in {folder}",
            found=f"there are {len(found)}",
            fix=f"Name one; {newest} is the newest, and `interp view {folder}` shows all.",
        )
    return found[0]


def _read_findings(probe: str, content: FindingsFile, folder: Path) -> Findings:
    from safetensors.numpy import load_file

    tables, fix = {}, "The record is incomplete or was edited; repeat the run."
    for name, table in content.tables.items():
        with readable(f"the table {table.path} of the record {folder}", fix):
            tables[name] = Table(read_columns(folder / table.path), dict(table.units), table.caption)
    arrays_path = folder / f"arrays.{probe}.safetensors"
    with readable(f"the arrays {arrays_path.name} of the record {folder}", fix):
        arrays = load_file(arrays_path) if arrays_path.exists() else {}
    with readable(f"the findings of {probe} in the record {folder}", fix, found="they do not fit"):
        return Findings(
            probe, content.scalars, tables, arrays, tuple(content.notes), tuple(content.headline),
            {name: tuple(controls) for name, controls in content.controls.items()}, content.facts, content.parameters,
        )  # fmt: skip


def finished_record(
    spec_hash: str, out: Path, is_same: Callable[[RunRecord], bool] = lambda record: True
) -> RunRecord | None:
    """The newest readable record of this specification in `out`, if `is_same` accepts it; else None."""
    for file in sorted(out.glob("[!.]*/run.json"), reverse=True):
        try:
            content = read_json(file)
            if not isinstance(content, dict) or content.get("spec_hash") != spec_hash:
                continue
            record = open_run(file)
        except (OSError, ValueError, RecursionError, RecordError):
            continue  # damaged, or of another program
        if is_same(record):
            return record
    return None


@contextmanager
def waiting_for_lock(
    out: Path, spec_hash: str, what: str, is_same: Callable[[RunRecord], bool] = lambda record: True
) -> Iterator[RunRecord | None]:
    """Hold the lock of this specification in `out`; a warning says that `what` waits for another process.

    Yields the record that the other process finished meanwhile, if `is_same` accepts it. Earlier records are not
    yielded: a repeated run is measured again.
    """
    before = {file.parent for file in out.glob("[!.]*/run.json")}
    with one_at_a_time(out / f".interp-{spec_hash}.lock", f"{what} into {out}") as waited:
        yield finished_record(spec_hash, out, lambda r: r.path not in before and is_same(r)) if waited else None
