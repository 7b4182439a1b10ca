"""Donors of attention patterns: loaded where an edit names them, each once, as the model was."""

from collections.abc import Sequence
from dataclasses import replace

from interp.capture import ModelInfo
from interp.edit import Edit
from interp.edits import PatternsOf
from interp.loading.load import load
from interp.model import Model


def with_donors(edits: Sequence[Edit], info: ModelInfo) -> tuple[Edit, ...]:
    """The edits with their donors loaded, in the precision and the place of the model they are for."""
    loaded: dict[str, Model] = {}
    found = []
    for edit in edits:
        if isinstance(edit, PatternsOf) and isinstance(edit.donor, str):
            if edit.donor not in loaded:
                is_one_device = "," not in info.device and "offloaded" not in info.device
                device, device_map = (info.device, None) if is_one_device else (None, "auto")
                loaded[edit.donor] = load(edit.donor, dtype=info.dtype, device=device, device_map=device_map)
            edit = replace(edit, donor=loaded[edit.donor])
        found.append(edit)
    return tuple(found)
