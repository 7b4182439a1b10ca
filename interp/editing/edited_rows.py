"""Where an edit acts: which positions of which prompts, and the same for one batch."""

import numpy as np
import torch
from jaxtyping import Int

from interp.edit import Edit
from interp.editing.call_positions import CallPositions
from interp.editing.steps import EditedRows
from interp.edits import ReplaceCoordinates
from interp.errors import UsageError
from interp.prompt import PromptSet
from interp.reading.batches import Batch, RowIndex, row_index


def edited_rows(edit: Edit, prompts: PromptSet, lengths: Int[np.ndarray, " prompt"]) -> RowIndex:
    """The (prompt, position) pairs that an edit names.

    Raises `PromptError` for an unknown column or a position outside a prompt, `UsageError` where an edit brings values
    for another number of rows.
    """
    index = row_index(prompts, lengths, edit.at)
    if isinstance(edit, ReplaceCoordinates) and edit.values.ndim == 2 and len(edit.values) != len(index):
        raise UsageError(
            asked=f"{edit} with values of {len(edit.values)} rows",
            found=f"it names {len(index)} rows ({edit.at}) of {len(lengths)} prompts",
            fix="Give one row of values for each, in the order of the prompts, or a single one for all.",
        )
    return index


def rows_in_batch(index: RowIndex, batch: Batch) -> EditedRows:
    """The edited rows of one batch."""
    rows = batch.rows(index)
    mask = torch.zeros(batch.ids.shape, dtype=torch.bool, device=batch.ids.device)
    number = torch.zeros(batch.ids.shape, dtype=torch.int64, device=batch.ids.device)
    mask[rows.item, rows.position] = True
    number[rows.item, rows.position] = torch.from_numpy(rows.row).to(batch.ids.device)
    return EditedRows(mask, number)


def rows_without_prompts(edit: Edit, x: torch.Tensor, call: CallPositions | None) -> EditedRows:
    """The edited rows of `x` `[variant, batch, pos, feature]`, all or those its `call` tells: no prompts are known."""
    if not isinstance(edit.at, tuple):
        mask = torch.ones(x.shape[1:3], dtype=torch.bool, device=x.device)
    elif call is not None:
        mask = call.mask(edit, x.shape[2] if edit.place in ("k", "v") else None).to(x.device)
    else:
        raise UsageError(
            asked=f"{edit} at positions {list(edit.at)}",
            found="only a part of the model was called, so its positions are unknown",
            fix="Call the model itself (model.module(...), generate), or edit at all positions.",
        )
    return EditedRows(mask, torch.zeros_like(mask, dtype=torch.int64))
