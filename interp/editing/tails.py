"""Passes over the ends of prompts: the tokens before the first edited position are the same under every edit.

Keys and values of these tokens are kept from the pass without edits, and stand before those of the tokens that pass.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from interp.editing.prompt_tensors import PromptTensors
from interp.editing.restart import MEMORY
from interp.hooks.attention import Listener
from interp.hooks.pattern import AttentionCall
from interp.model import Model
from interp.reading.batches import RowIndex
from interp.reading.packs import Ids, Pack

_WORTH = 1 / 2
"""Share of the tokens that tails may have at most."""

_TOKENS_BEFORE = 16
"""Tokens before a tail that take as much memory and time as one that passes."""


def tail_starts(
    edited: Sequence[RowIndex], read: Sequence[RowIndex], lengths: Int[np.ndarray, " prompt"]
) -> Int[np.ndarray, " prompt"] | None:
    """The first edited position of every prompt; None where earlier ones are read, or little would be saved."""
    starts = lengths - 1
    for index in edited:
        np.minimum.at(starts, index.prompt, index.position)
    is_early = any((index.position < starts[index.prompt]).any() for index in read)
    return None if is_early or (lengths - starts).sum() > _WORTH * lengths.sum() else starts


def tails(ids: Ids, prompts: Int[np.ndarray, " chosen"], starts: Int[np.ndarray, " prompt"]) -> list[Pack]:
    """These prompts from their starts on, the longest first."""
    found = [Pack.tail(prompt, ids, int(starts[prompt])) for prompt in prompts.tolist()]
    return sorted(found, key=len, reverse=True)


def tokens_of_tails(n_tokens: int, starts: Int[np.ndarray, " prompt"], lengths: Int[np.ndarray, " prompt"]) -> int:
    """How many tokens of tails pass at once where `n_tokens` of whole prompts would."""
    own = int((lengths - starts).sum())
    return max(1, n_tokens * own // (own + int(starts.sum()) // _TOKENS_BEFORE))


class Prefixes(PromptTensors):
    """Keys and values of all prompts in some layers, which tails attend to."""

    @staticmethod
    def fits(model: Model, first: int, lengths: Int[np.ndarray, " prompt"]) -> bool:
        """Whether attention of this model can be continued, and what is kept for it fits into `MEMORY`."""
        info, window = model.info, model.info.window
        size = len(lengths) * int(lengths.max()) * 2 * info.n_kv_heads * info.d_head * model.module.dtype.itemsize
        is_whole = info.attention_layers is None and model.family.mixer is None
        sees_all = window is None or lengths.max() <= window
        return bool(info.n_heads and is_whole and sees_all and size * (info.n_layers - first) <= MEMORY)

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        """Keep what the announced batch has."""
        if call.layer in self.layers:
            self.put(call.layer, torch.cat([call.k, call.v], dim=1).transpose(1, 2).flatten(2))
        return z


class Lending(Listener):
    """Lets the tails of announced batches, repeated any number of times, attend to what lies before them."""

    def __init__(self, prefixes: Prefixes) -> None:
        self.prefixes = prefixes

    def before(self, call: AttentionCall) -> None:
        before = self.prefixes.before_batch(call.layer).to(call.k.device).unflatten(2, (2 * call.k.shape[1], -1))
        before = before.transpose(1, 2).repeat(len(call.k) // len(before), 1, 1, 1)  # [item, head, pos, d_head]
        keys, values = before.chunk(2, dim=1)
        call.k, call.v = torch.cat([keys, call.k], dim=2), torch.cat([values, call.v], dim=2)
