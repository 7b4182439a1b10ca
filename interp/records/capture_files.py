"""Open captures from their folders, after comparing every file with its digest."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from interp.capture import FORMAT, Capture, ModelInfo
from interp.errors import RecordError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.records.versioned_json import REMOVED_REDUCTIONS, read_versioned
from interp.reductions import REDUCTIONS, PromptMean, Rows
from interp.system.array_files import digest_of_file, read_array
from interp.system.digest import digest_of
from interp.system.foreign_files import read_columns, read_json, read_rows, readable
from interp.system.plain_numbers import path as plain_path
from interp.table import Table

_FIX = "The folder was damaged or edited; capture again."


@dataclass(frozen=True)
class KeptNeed:
    """A need and the files of its arrays, by name."""

    site: str
    at: str
    fold: str
    fold_fields: dict[str, Any]
    arrays: dict[str, str]
    layers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class KeptTable:
    """Units and caption of a table, and the `file` of its columns, which the first format did not name."""

    units: dict[str, str]
    caption: str
    file: str | None = None

    def file_of(self, at: str) -> str:
        return self.file or f"rows.{at}.parquet"


@dataclass(frozen=True)
class KeptPrompts:
    """A prompt set without prompts, posterior and belief: `PromptSet.described`."""

    name: str
    units: dict[str, str]
    source: str = ""
    unit: str = "prompt"
    seed: int | None = None
    window: int | None = None
    is_templated: bool = False
    cluster: str | None = None


@dataclass(frozen=True)
class CaptureFile:
    """The content of `capture.json`."""

    format: int
    digest: str
    model: ModelInfo
    prompts: KeptPrompts
    tables: dict[str, KeptTable]
    needs: list[KeptNeed]
    exact: list[str]
    seed: int
    layers: tuple[int, ...] | None
    provenance: dict[str, Any]
    files: dict[str, str]


def open_capture(path: str | Path) -> Capture:
    """Open a capture that `Capture.save` has written. Arrays stay in their files until they are used.

    Args:
        path: The folder, or its `capture.json`.

    Returns:
        The capture.

    Raises:
        RecordError: The capture is missing, truncated, edited or of a newer version. All files are compared with their
            digests first; the message names the file.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> capture = interp.collect(model, interp.sampled_prompts(model.task, 8), ["v"])
        >>> folder = capture.save("values")
        >>> bool((interp.open_capture("values")["v"] == capture["v"]).all())
        True
    """
    folder = plain_path(path)
    folder = folder.parent if folder.name == "capture.json" else folder
    asked = f"the capture {folder}"
    content = read_versioned(
        folder / "capture.json", CaptureFile, FORMAT, asked=asked,
        written_by="Give the folder that `capture.save` wrote; it contains capture.json.", again="capture again",
    )  # fmt: skip
    plain = read_json(folder / "capture.json")
    if digest_of({name: x for name, x in plain.items() if name not in ("format", "digest")}) != content.digest:
        raise _spoilt(asked, "capture.json is not as it was written")
    with readable(asked, _FIX, found="it has contents that no capture has"):  # its digests fit: it was made so
        _refuse_changed(folder, content, asked)
        return _read(folder, content)


def _refuse_changed(folder: Path, content: CaptureFile, asked: str) -> None:
    if "scored" not in content.tables:
        raise _spoilt(asked, "capture.json has no table of the scored positions")
    named = {"prompts.parquet", *(kept.file_of(at) for at, kept in content.tables.items())}
    named |= {f"{name}.safetensors" for name in content.exact} | {f for n in content.needs for f in n.arrays.values()}
    for name in sorted(named | set(content.files)):
        if Path(name).name != name or not (folder / name).is_file():
            raise _spoilt(asked, f"{name} is missing")
        if digest_of_file(folder / name) != content.files.get(name):
            raise _spoilt(asked, f"{name} is not as it was written")


def _read(folder: Path, content: CaptureFile) -> Capture:
    exact = {name: read_array(folder / f"{name}.safetensors") for name in content.exact}
    arrays: dict[Need, Mapping[str, np.ndarray]] = {}
    for kept in content.needs:
        if kept.fold in REMOVED_REDUCTIONS:
            warnings.warn(f"{kept.fold} of {kept.site} is left out: interp no longer has it", stacklevel=3)
            continue
        fold = TypeAdapter(REDUCTIONS[kept.fold]).validate_python(kept.fold_fields)
        need = Need(kept.site, fold, kept.at, kept.layers)
        if isinstance(fold, Rows | PromptMean) and "rows" not in kept.arrays:
            raise ValueError(f"{kept.site} has no array of its rows")
        arrays[need] = {name: read_array(folder / file) for name, file in kept.arrays.items()}
    return Capture(
        model=content.model,
        prompts=PromptSet(
            prompts=_prompts(folder / "prompts.parquet"),
            **vars(content.prompts),
            **{name: exact.get(name) for name in ("posterior", "belief", "outcome_ids")},
        ),
        tables={
            at: Table(read_columns(folder / kept.file_of(at)), kept.units, kept.caption)
            for at, kept in content.tables.items()
        },
        arrays=arrays,
        seed=content.seed,
        posterior=exact.get("rows.posterior"),
        belief=exact.get("rows.belief"),
        layers=content.layers,
        provenance=content.provenance,
    )


def _prompts(path: Path) -> list[Prompt]:
    rows = read_rows(path).to_pylist()
    parsed = [
        row | {"columns": json.loads(row["columns"]), "scored_columns": json.loads(row["scored_columns"])}
        for row in rows
    ]
    return TypeAdapter(list[Prompt]).validate_python(parsed)


def _spoilt(asked: str, found: str) -> RecordError:
    return RecordError(asked=asked, found=found, fix=_FIX)
