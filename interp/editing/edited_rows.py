"""Where an edit acts: the positions of prompts in a run, in one batch, and in forward passes of unknown prompts.

In a pass of unknown prompts, positions of texts are `position_ids`, or else counts of the attention mask, or else
columns after those of the cache; masked columns are padding. Cached keys and values have the positions of earlier
calls.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int
from torch.nn.functional import pad

from interp.edit import Edit
from interp.editing.steps import EditedRows
from interp.edits import ReplaceCoordinates
from interp.errors import PromptError, UsageError
from interp.hooks.own_attention import cache_given
from interp.prompt import PromptSet
from interp.reading.batches import Batch, RowIndex, row_index

_PADDING, _UNMET = -1, -2
"""The position of padding, and of a token that was cached before the edit."""


def edited_rows(edit: Edit, prompts: PromptSet, lengths: Int[np.ndarray, " prompt"]) -> RowIndex:
    """The (prompt, position) pairs of an edit.

    Raises `PromptError` for an unknown column or a position outside a prompt, `UsageError` if an edit has values for
    another number of rows.
    """
    index = row_index(prompts, lengths, edit.at)
    if isinstance(edit, ReplaceCoordinates) and edit.values.ndim == 2 and len(edit.values) != len(index):
        raise UsageError(
            asked=f"{edit.where} with values of {len(edit.values)} rows",
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


@dataclass(frozen=True)
class CallPositions:
    """Positions of a call's texts `[batch, pos]`, counted from 0, -1 for padding, and of its cache `[batch, cached]`.

    `is_whole`: without a cache the call contains whole texts, so all positions of an edit must be there.
    """

    number: torch.Tensor
    cached: torch.Tensor
    is_whole: bool

    @property
    def so_far(self) -> torch.Tensor:
        """Positions of the cache and of this call, `[batch, cached and pos]`."""
        return torch.cat([self.cached.to(self.number), self.number], dim=1)

    def mask(self, edit: Edit, n_keys: int | None = None) -> torch.Tensor:
        """Where an edit at positions acts on the tokens of this call, `[batch, pos]`.

        With `n_keys`, where it acts on the keys and values that attention gets, `[batch, key_pos]`, including cached
        ones, which are unedited. A sliding window has the last ones; a cache of a fixed size has room after them.
        """
        assert isinstance(edit.at, tuple)
        self._refuse_absent(edit, min(edit.at), max(edit.at))
        number = self.number
        if n_keys is not None:
            held = self.so_far[:, -n_keys:]
            number = pad(held, (0, n_keys - held.shape[1]), value=_PADDING)
        return torch.isin(number, torch.tensor(edit.at, device=number.device))

    def _refuse_absent(self, edit: Edit, first: int, last: int) -> None:
        lengths = self.number.amax(dim=1) + 1
        short = int(lengths.argmin())
        if self.is_whole and int(lengths[short]) <= last:
            raise PromptError(
                asked=f"{edit.where} at position {last}",
                found=f"text {short + 1} of the pass has {int(lengths[short])} tokens",
                fix="Positions count tokens from 0, without padding. To continue the text, pass use_cache=True.",
            )
        so_far = self.so_far
        begins = torch.where(so_far < 0, torch.iinfo(so_far.dtype).max, so_far).amin(dim=1)
        if bool(((so_far == _UNMET).any(dim=1) & (begins > first)).any()):
            raise UsageError(
                asked=f"{edit.where} at position {first}",
                found="the cache contains that token from before this edit",
                fix="Fill the cache inside the block, or edit at later positions.",
            )


class CallsOfTexts(threading.local):
    """The positions of the call that runs `now` in a thread, set by a pair of hooks around every call.

    `of_cache` are the positions of the entries of caches, shared by threads; `entered` are the inputs of the call's
    layers.
    """

    def __init__(self, of_cache: WeakKeyDictionary[Any, torch.Tensor]) -> None:
        self.now: CallPositions | None = None
        self.entered: dict[int, torch.Tensor] = {}
        self._of_cache = of_cache

    def begin(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pre-hook."""
        self.now = positions_of_call(module, args, kwargs, self._of_cache)

    def end(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """A forward hook; `out` is None where the call failed."""
        call, self.now = self.now, None
        if call is None or out is None:
            return
        made = out.values() if isinstance(out, Mapping) else out
        caches = [cache_given(_arguments(module, args, kwargs)), *made]
        cache = next((each for each in caches if hasattr(each, "get_seq_length")), None)
        if cache is not None:
            self._of_cache[cache] = call.so_far


def positions_of_call(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    of_cache: Mapping[Any, torch.Tensor] | None = None,
) -> CallPositions:
    """The positions of a call of `module`; raises `UsageError` if they are unknown.

    `of_cache` are the positions of the entries of caches, `[batch, cached]`.
    """
    given = _arguments(module, args, kwargs)
    ids = given.get("input_ids")
    batch, n = (given["inputs_embeds"] if ids is None else ids).shape[:2]
    cache, mask, positions = cache_given(given), given.get("attention_mask"), given.get("position_ids")
    known = None if cache is None or of_cache is None else of_cache.get(cache)
    before = 0 if cache is None else _held(cache, known)
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.shape == (batch, before + n)):
        if positions is None:
            raise _unknown_positions(f"a mask that does not count the {before + n} tokens of every text")
        mask = None
    is_token = None if mask is None else mask[:, before:] != 0
    if positions is not None:
        if positions.ndim != 2 or positions.shape[1] != n:
            raise _unknown_positions(f"position_ids of the shape {list(positions.shape)}")
        number = positions.expand(batch, n)
    elif mask is not None:
        number = (mask != 0).long().cumsum(dim=1)[:, before:] - 1
    else:
        number = torch.arange(before, before + n)[None].expand(batch, n)
    number = number if is_token is None else torch.where(is_token, number, _PADDING)
    if known is None or known.shape[1] < before or len(known) not in (1, batch):
        known = torch.full((1, before), _UNMET)
    is_whole = cache is None and given.get("use_cache") is not True
    return CallPositions(number, known[:, :before].expand(batch, before), is_whole)


def _arguments(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    given = signature(module.forward).bind_partial(*args, **kwargs).arguments
    return given | given.pop("kwargs", {})


def _held(cache: Any, known: torch.Tensor | None) -> int:
    """How many positions a cache has. That of a state-space model only knows whether it has any."""
    if not hasattr(cache, "get_seq_length"):
        raise _unknown_positions(f"a cache ({type(cache).__name__}) that does not say how much it holds")
    try:
        return int(cache.get_seq_length())
    except ValueError as error:
        if known is None and cache.has_previous_state():
            raise _unknown_positions("a cache that does not say how much it held before the edit") from error
        return 0 if known is None else known.shape[1]


def _unknown_positions(found: str) -> UsageError:
    return UsageError(
        asked="edits at positions of a text",
        found=f"the call has {found}",
        fix="Give position_ids [batch, position], or an attention_mask [batch, position] of cache and input.",
    )


def rows_without_prompts(edit: Edit, x: torch.Tensor, call: CallPositions | None) -> EditedRows:
    """The edited rows of `x` `[variant, batch, pos, feature]`, by the positions of its `call`, for unknown prompts."""
    if not isinstance(edit.at, tuple):
        mask = torch.ones(x.shape[1:3], dtype=torch.bool, device=x.device)
    elif call is not None:
        mask = call.mask(edit, x.shape[2] if edit.place in ("k", "v") else None).to(x.device)
    else:
        raise UsageError(
            asked=f"{edit.where} at positions {list(edit.at)}",
            found="only a part of the model was called, so its positions are unknown",
            fix="Call the model itself (model.module(...), generate), or edit at all positions.",
        )
    return EditedRows(mask, torch.zeros_like(mask, dtype=torch.int64))
