"""What the unedited model has where an edit puts something else: head outputs of other prompts, and their means."""

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Int

from interp.errors import PromptError
from interp.reading.batches import Batch, RowIndex
from interp.seam.attention import Listener
from interp.seam.pattern import AttentionCall
from interp.system.processes import Ranks


class HeadOutputs(Listener):
    """The head outputs of a few layers at every position of every prompt, `[prompt, pos, feature]`, on the CPU."""

    def __init__(self, layers: Collection[int], lengths: Int[np.ndarray, " prompt"]) -> None:
        self.lengths = lengths
        self._wanted = frozenset(layers)
        self._kept: dict[int, torch.Tensor] = {}
        self._prompts: np.ndarray = np.empty(0, dtype=np.int64)
        self._donors: dict[int, np.ndarray] = {}

    def begin(self, batch: Batch) -> None:
        """Announce the batch that passes next."""
        self._prompts = batch.prompts

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        if call.layer in self._wanted:
            flat = z.flatten(2).cpu()
            if call.layer not in self._kept:
                self._kept[call.layer] = flat.new_zeros(len(self.lengths), int(self.lengths.max()), flat.shape[-1])
            self._kept[call.layer][torch.from_numpy(self._prompts), : flat.shape[1]] = flat
        return z

    def join(self, ranks: Ranks) -> None:
        """Take in the outputs of the prompts that other ranks have run."""
        ranks.fill(self._kept, sorted(self._wanted))

    def mean(self, layer: int, rows: RowIndex) -> torch.Tensor:
        """The mean over the rows of `rows`, `[1, 1, feature]`, float64."""
        picked = self._kept[layer][torch.from_numpy(rows.prompt), torch.from_numpy(rows.position)]
        return picked.double().mean(dim=0)[None, None]

    def donated(self, layer: int, seed: int, batch: Batch) -> torch.Tensor:
        """For every prompt of the batch the outputs of its donor at the same positions, `[prompt, pos, feature]`."""
        donor = self.donors(seed)[batch.prompts]
        last = torch.from_numpy(self.lengths[donor] - 1)[:, None]
        position = torch.minimum(torch.arange(batch.ids.shape[1])[None], last)
        return self._kept[layer][torch.from_numpy(donor)[:, None], position]

    def donors(self, seed: int) -> Int[np.ndarray, " prompt"]:
        """Another prompt for each, drawn among those at least as long.

        The longest have none: theirs is drawn among all, and its last position stands for what it lacks.
        """
        if len(self.lengths) < 2:
            raise PromptError(
                asked="resampling head outputs", found="there is one prompt", fix="Another prompt has to lend them."
            )
        if seed not in self._donors:
            rng = np.random.default_rng(seed)
            everybody = np.arange(len(self.lengths))
            chosen = []
            for prompt in everybody:
                others = everybody[everybody != prompt]
                long = others[self.lengths[others] >= self.lengths[prompt]]
                chosen.append(int(rng.choice(long if len(long) else others)))
            self._donors[seed] = np.array(chosen)
        return self._donors[seed]
