"""Which token of its text every position of a forward pass holds: the call itself tells it.

Columns of a pass are not tokens of a text where batches are padded on the left, or where a cache holds what came
before. `position_ids` say it outright; else the attention mask counts the tokens; else the cache tells how many came
before. Padding, by the mask, is no token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from interp.edits import Edit
from interp.errors import PromptError, UsageError


@dataclass(frozen=True)
class CallPositions:
    """Positions of a call's texts `[batch, pos]`, counted from 0, -1 for padding.

    `is_whole`: without a cache a text is all in this call, and a position that is not there is nowhere.
    """

    number: torch.Tensor
    is_whole: bool

    def mask(self, edit: Edit) -> torch.Tensor:
        """Where an edit at some positions acts, `[batch, pos]`; `PromptError` where a text ends before them."""
        assert isinstance(edit.at, tuple)
        if self.is_whole:
            lengths = self.number.amax(dim=1) + 1
            short = int(lengths.argmin())
            if int(lengths[short]) <= max(edit.at):
                raise PromptError(
                    asked=f"{edit} at position {max(edit.at)}",
                    found=f"text {short + 1} of the pass has {int(lengths[short])} tokens",
                    fix="Positions count tokens from 0, padding left out.",
                )
        return torch.isin(self.number, torch.tensor(edit.at, device=self.number.device))


def positions_of_call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallPositions:
    """The positions of a call of `module`; `UsageError` where the call does not tell them."""
    given = signature(module.forward).bind_partial(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})
    ids = given.get("input_ids")
    batch, n = (given["inputs_embeds"] if ids is None else ids).shape[:2]
    cache, mask, positions = cache_given(given), given.get("attention_mask"), given.get("position_ids")
    before = 0 if cache is None else _held(cache)
    if mask is not None and not (isinstance(mask, torch.Tensor) and mask.shape == (batch, before + n)):
        if positions is None:
            raise _untold(f"a mask that does not count the {before + n} tokens of every text")
        mask = None
    is_token = None if mask is None else mask[:, before:] != 0
    if positions is not None:
        if positions.ndim != 2 or positions.shape[1] != n:
            raise _untold(f"position_ids of the shape {list(positions.shape)}")
        number = positions.expand(batch, n)
    elif mask is not None:
        number = (mask != 0).long().cumsum(dim=1)[:, before:] - 1
    else:
        number = torch.arange(before, before + n)[None].expand(batch, n)
    number = number if is_token is None else torch.where(is_token, number, -1)
    return CallPositions(number, is_whole=cache is None)


def cache_name(module: torch.nn.Module) -> str:
    """What the module calls a cache of earlier tokens: `cache` in newer transformers, `past_key_values` before."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


def cache_given(given: Mapping[str, Any]) -> Any:
    """The cache of earlier tokens among what a module was given, by its newer name or its older one."""
    cache = given.get("cache")
    return given.get("past_key_values") if cache is None else cache


def _held(cache: Any) -> int:
    """How many positions a cache holds."""
    if not hasattr(cache, "get_seq_length"):
        raise _untold(f"a cache ({type(cache).__name__}) that does not say how much it holds")
    return int(cache.get_seq_length())


def _untold(found: str) -> UsageError:
    return UsageError(
        asked="edits at positions of a text",
        found=f"the call has {found}",
        fix="Give position_ids [batch, position], or an attention_mask [batch, position] of cache and input.",
    )
