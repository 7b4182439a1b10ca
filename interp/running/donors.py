"""Donors of attention patterns: loaded where an edit names them, each once, as the model was."""

from dataclasses import replace
from typing import Any

from interp.capture import ModelInfo
from interp.edit import Edit
from interp.editing.edit_files import resolve_edits
from interp.edits import Edits, PatternsOf
from interp.loading.load import load
from interp.model import Model


def with_donors(edits: Edits, info: ModelInfo) -> tuple[Edit, ...]:
    """The edits with their donors loaded, in the precision and the place of the model they are for."""
    loaded: dict[str, Model] = {}
    found = []
    for edit in resolve_edits(edits):
        if isinstance(edit, PatternsOf) and isinstance(edit.donor, str):
            if edit.donor not in loaded:
                loaded[edit.donor] = load(edit.donor, **placed_alike(info))
            edit = replace(edit, donor=loaded[edit.donor])
        found.append(edit)
    return tuple(found)


def placed_alike(info: ModelInfo) -> dict[str, Any]:
    """The options that put another model where this one is, in its precision."""
    if "," in info.device or "offloaded" in info.device:
        return {"dtype": info.dtype, "device": None, "device_map": "auto"}
    return {"dtype": info.dtype, "device": info.device, "device_map": None}
