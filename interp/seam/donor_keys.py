"""The null of matching: every query meets the keys of another prompt, at the same positions.

Position, the head's temperature and whatever all prompts share (a sink, say) stay as they are; what is gone is that
these keys belong to this query. The donor of each prompt is the one before it in order of length (the order in which
the pass reads them), so that the choice depends neither on the batches nor on chance. Where the donor is shorter by
a few tokens, a prompt keeps its own keys there; the first prompt has no donor and its numbers are NaN.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int

from interp.seam.pattern import AttentionCall, DonorKeys


class KeyDonors:
    """Swaps the keys of a batch, and remembers those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._lengths: Int[np.ndarray, " item"] = np.empty(0, dtype=np.int64)
        self._donor_length = 0
        self._last: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor] = {}

    def begin(self, lengths: Int[np.ndarray, " item"]) -> None:
        """Announce the true lengths of the batch that is about to be read."""
        self._lengths, self._coming = lengths, {}

    def end(self) -> None:
        """The announced batch was read: its last prompt is the donor of the first of the next."""
        self._donor_length, self._last = int(self._lengths[-1]), self._coming

    def swapped(self, call: AttentionCall) -> AttentionCall:
        """The call with the keys of donors. Once a layer and batch."""
        lengths = np.concatenate([[self._donor_length], self._lengths[:-1]])
        n_donated = torch.from_numpy(lengths).to(call.k.device)
        self._coming[call.layer] = call.k[-1, :, : int(self._lengths[-1])].clone()
        n_least = int(lengths[1:].min(initial=call.k.shape[2]))
        return replace(call, donor=DonorKeys(self._last.get(call.layer), n_donated, n_least))
