"""The null of matching: every query meets the keys of another prompt, at the same positions.

Position, the head's temperature and whatever all prompts share (a sink, a closing template) stay as they are; what is
gone is that these keys belong to this query. The donor of each prompt is the one before it when they are ordered by
length, the longest first (the order in which the pass reads them), so that the choice depends neither on the batches
nor on chance. It has to be as long: what prompts share at their ends would lie elsewhere in a longer one, and own keys
would win by position alone. And it has to be of another cluster: within one, prompts share their wording. A prompt
without such a donor has none, and its numbers are NaN.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int

from interp.hooks.pattern import AttentionCall, DonorKeys


class KeyDonors:
    """Swaps the keys of a batch, and remembers those of its last prompt for the first of the next batch."""

    def __init__(self) -> None:
        self._last_of = self._coming_of = (-1, -1)
        self._fits = torch.empty(0, dtype=torch.bool)
        self._last: dict[int, torch.Tensor] = {}
        self._coming: dict[int, torch.Tensor] = {}

    def begin(self, lengths: Int[np.ndarray, " item"], clusters: Int[np.ndarray, " item"]) -> None:
        """Announce the true lengths of the batch that is about to be read, and the clusters of its prompts."""
        own = np.stack([lengths, clusters], axis=1)
        before = np.concatenate([[self._last_of], own[:-1]])
        self._fits = torch.from_numpy((own[:, 0] == before[:, 0]) & (own[:, 1] != before[:, 1]))
        self._coming_of, self._coming = (int(lengths[-1]), int(clusters[-1])), {}

    def end(self) -> None:
        """The announced batch was read: its last prompt is the donor of the first of the next."""
        self._last, self._last_of = self._coming, self._coming_of

    def swapped(self, call: AttentionCall) -> AttentionCall:
        """The call with the keys of donors. Once a layer and batch."""
        self._coming[call.layer] = call.k[-1, :, : self._coming_of[0]].clone()
        return replace(call, donor=DonorKeys(self._last.get(call.layer), self._fits.to(call.k.device)))
