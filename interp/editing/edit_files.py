"""Edits from JSON files, as `--edit file.json` takes them.

    {"edits": [{"kind": "remove", "site": "v", "layer": -1, "dose": 1.0, "at": "all",
                "axis": {"array": "runs/a-run:value_axis.v.pc1.axis", "row": -1}}]}

`kind` is one of interp.edits.KINDS, and the other keys are the fields of its class. The `donor` of patterns is the name
of a model, or its folder. An array is given as lists, or by name: `FILE.safetensors:NAME`, or `RUN:PROBE.NAME` for an
array of a run. Paths are relative to the folder of the file, or else to the working directory. `row` picks one entry of
the first axis, such as a layer.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interp.edit import Edit
from interp.edits import KINDS, Edits, PatternsOf
from interp.errors import UnknownName, UsageError, named
from interp.settings import read_fields
from interp.system.foreign_files import read_json, readable
from interp.system.plain_numbers import path as plain_path


def resolve_edits(edits: Edits) -> tuple[Edit, ...]:
    """The given edits, or those of a file."""
    if isinstance(edits, str | Path):
        return read_edits(edits)
    listed = [edits] if isinstance(edits, Edit | Mapping) else edits
    if not isinstance(listed, Iterable):
        fix = "Give edits, such as interp.AblateHeads(0, 1), or the path of a JSON file."
        raise UsageError(asked=f"the edits {edits!r:.60}", found=f"it is a {type(edits).__name__}", fix=fix)
    return tuple(
        edit if isinstance(edit, Edit) else edit_from_json(edit, what=f"edit {i + 1}") for i, edit in enumerate(listed)
    )


def read_edits(path: str | Path) -> tuple[Edit, ...]:
    """The edits of a JSON file, in order. Raises `UsageError`, with the number of the edit, for an unusable one."""
    path = plain_path(path)
    asked = f"the edits of {path}"
    fix = "Give the path of a JSON file; look there for a missing or a surplus comma or quote."
    with readable(asked, fix, found="it cannot be read as JSON", error=UsageError):
        content = read_json(path)
    if isinstance(content, dict):
        for key in content:
            if key != "edits":
                raise UnknownName("key", key, ["edits"])
    listed = content.get("edits") if isinstance(content, dict) else content
    if not isinstance(listed, list) or not listed:
        raise UsageError(asked=asked, found="there is no list of edits in it", fix='Write {"edits": [{"kind": ...}]}.')
    return tuple(edit_from_json(entry, path.parent, f"edit {i + 1} of {path.name}") for i, entry in enumerate(listed))


def edit_from_json(entry: Any, folder: Path = Path(), what: str = "an edit") -> Edit:
    """One edit from plain values, as `Edit.to_json` gives them; `what` names it in errors."""
    if not isinstance(entry, Mapping) or "kind" not in entry:
        raise UsageError(asked=what, found=f"{entry!r:.60} has no `kind`", fix=f"Name one of {', '.join(KINDS)}.")
    cls = named("kind of edit", str(entry["kind"]), KINDS)
    given = {
        key: _named_array(f"{what}: {key}", value, folder) if isinstance(value, Mapping) else value
        for key, value in entry.items()
        if key != "kind"
    }
    values = read_fields(cls, f"{what}: {cls.kind}", given, from_words=False)
    if cls is PatternsOf and isinstance(values.get("donor"), str) and (folder / values["donor"]).is_dir():
        values["donor"] = str(folder / values["donor"])
    try:
        return cls(**values)
    except UsageError as error:
        raise UsageError(asked=f"{what}: {error.asked}", found=error.found, fix=error.fix) from error


def _named_array(what: str, reference: Mapping[str, Any], folder: Path) -> np.ndarray:
    from safetensors.numpy import load_file

    for key in reference:
        if key not in ("array", "row"):
            raise UnknownName("key of an array", key, ["array", "row"])
    name = reference.get("array")
    if not isinstance(name, str) or ":" not in name:
        fix = "Write FILE.safetensors:NAME or RUN:PROBE.NAME."
        raise UsageError(asked=what, found=f"{name!r} names no array", fix=fix)
    place, _, key = name.rpartition(":")
    path = folder / place if (folder / place).exists() else Path(place)
    if path.is_dir():
        probe, _, key = key.partition(".")
        path = path / f"arrays.{probe}.safetensors"
    with readable(f"{what} from {path}", "Give the folder of a run whose probe keeps arrays, or a .safetensors file."):
        arrays = load_file(path)
    array, row = named(f"array of {path.name}", key, arrays), reference.get("row")
    if row is None:
        return array
    if not isinstance(row, int) or array.ndim == 0 or not -len(array) <= row < len(array):
        found = f"row {row!r} of an array of shape {array.shape}"
        raise UsageError(asked=what, found=found, fix="Name a row that it has, counted from 0 or from the end.")
    return np.asarray(array[row])
