"""Tensors of the pass without edits, kept on the CPU at every position of every prompt."""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Int

from interp.hooks.attention import Listener
from interp.reading.batches import Batch
from interp.system.processes import Ranks


class PromptTensors(Listener):
    """Of some layers, `[prompt, pos, feature]`; behind the end of a prompt, and where nothing was put, they are 0."""

    def __init__(self, lengths: Int[np.ndarray, " prompt"], layers: Iterable[int]) -> None:
        self.lengths, self.layers = lengths, sorted(set(layers))
        self._kept: dict[int, torch.Tensor] = {}
        self._prompts = self._starts = torch.empty(0, dtype=torch.int64)

    def begin(self, batch: Batch) -> None:
        """Announce the batch that passes next."""
        self._prompts, self._starts = torch.from_numpy(batch.prompts), torch.from_numpy(batch.starts)

    def put(self, layer: int, x: torch.Tensor) -> None:
        """Keep what the announced batch has, `[prompt, pos, feature]`."""
        self._write(layer, self._prompts, x.cpu())

    def of_batch(self, layer: int, n_pos: int) -> torch.Tensor:
        """What the announced batch had at its first positions, counted from where it starts."""
        kept = self._kept[layer]
        position = (self._starts[:, None] + torch.arange(n_pos)).clamp_max(kept.shape[1] - 1)
        return kept[self._prompts[:, None], position]

    def before_batch(self, layer: int) -> torch.Tensor:
        """What lies before the announced batch, as far as its latest start."""
        return self._kept[layer][self._prompts, : int(self._starts.max())]

    def __getitem__(self, layer: int) -> torch.Tensor:
        return self._kept[layer]

    def join(self, ranks: Ranks, prompts: Int[np.ndarray, " item"]) -> None:
        """Complete the layers: this rank has put `prompts`, every other one its own."""
        mine = torch.from_numpy(prompts)
        for layer in () if ranks.is_alone else self.layers:
            for theirs, x in ranks.union((mine, self._kept[layer][mine] if len(mine) else None)):
                if x is not None:
                    self._write(layer, theirs, x)

    def _write(self, layer: int, prompts: torch.Tensor, x: torch.Tensor) -> None:
        if layer not in self._kept:
            self._kept[layer] = x.new_zeros(len(self.lengths), int(self.lengths.max()), x.shape[-1])
        self._kept[layer][prompts, : x.shape[1]] = x
