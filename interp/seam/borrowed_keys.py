"""The null of matching: every query meets the keys of another prompt, at the same positions.

Position, the head's temperature and whatever all prompts share (a sink, say) stay as they are; what is gone is that
these keys belong to this query. Each prompt borrows from the one before it in order of length (the order in which
the pass reads them), so that the choice depends neither on the batches nor on chance. Where the lender is shorter by
a few tokens, the borrower keeps its own keys there; the first prompt has no lender and its numbers are NaN.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int

from interp.seam.pattern import AttentionCall, LentKeys


class OtherKeys:
    """Swaps the keys of a batch, and remembers those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._lengths: Int[np.ndarray, " item"] = np.empty(0, dtype=np.int64)
        self._lender_length = 0
        self._last: dict[int, torch.Tensor] = {}
        self._before: tuple[int, Int[np.ndarray, " item"]] = (0, self._lengths)
        self._replaced: tuple[int, torch.Tensor | None] | None = None

    def next_batch(self, lengths: Int[np.ndarray, " item"]) -> None:
        """Announce the true lengths of the batch that is about to be read."""
        self._before, self._replaced = (self._lender_length, self._lengths), None
        self._lender_length = int(self._lengths[-1]) if len(self._lengths) else 0
        self._lengths = lengths

    def undo(self) -> None:
        """Forget the batch whose pass has failed, which is going to be read again: its layers up to the failing one
        have been folded, so that one alone still needs what it borrowed from.
        """
        self._lender_length, self._lengths = self._before
        if self._replaced is not None:
            layer, keys = self._replaced
            if keys is None:
                del self._last[layer]
            else:
                self._last[layer] = keys
            self._replaced = None

    def swapped(self, call: AttentionCall) -> tuple[AttentionCall, torch.Tensor]:
        """The call with lent keys, and which items of the batch had a lender. Once a layer and batch."""
        lengths = np.concatenate([[self._lender_length], self._lengths[:-1]])
        n_borrowed = torch.from_numpy(lengths).to(call.k.device)
        lender = self._last.get(call.layer)
        mine = call.k[-1, :, : int(self._lengths[-1])].clone()
        self._replaced, self._last[call.layer] = (call.layer, lender), mine
        lent = LentKeys(lender, n_borrowed, int(lengths[1:].min(initial=call.k.shape[2])))
        return replace(call, lent=lent), n_borrowed > 0
