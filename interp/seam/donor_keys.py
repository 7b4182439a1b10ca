"""The null of matching: every query meets the keys of another prompt, at the same positions.

Position, the head's temperature and whatever all prompts share (a sink, say) stay as they are; what is gone is that
these keys belong to this query. The donor of each prompt is the one before it when they are ordered by length, the
longest first (the order in which the pass reads them): it has keys wherever the prompt has queries, and the choice
depends neither on the batches nor on chance. The first prompt, a longest one, has no donor and its numbers are NaN.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int

from interp.seam.pattern import AttentionCall, DonorKeys


class KeyDonors:
    """Swaps the keys of a batch, and remembers those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._last_length = 0
        self._last: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor] = {}

    def begin(self, lengths: Int[np.ndarray, " item"]) -> None:
        """Announce the true lengths of the batch that is about to be read."""
        self._last_length, self._coming = int(lengths[-1]), {}

    def end(self) -> None:
        """The announced batch was read: its last prompt is the donor of the first of the next."""
        self._last = self._coming

    def swapped(self, call: AttentionCall) -> AttentionCall:
        """The call with the keys of donors. Once a layer and batch."""
        self._coming[call.layer] = call.k[-1, :, : self._last_length].clone()
        return replace(call, donor=DonorKeys(self._last.get(call.layer)))
