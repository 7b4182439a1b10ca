"""Tensors of the unedited pass, such as head outputs, kept on the CPU for every position of every prompt.

Edits replace tensors by those of other prompts, and by their means.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Int

from interp.errors import PromptError
from interp.hooks.attention import Listener
from interp.hooks.pattern import AttentionCall
from interp.reading.batches import Batch, RowIndex
from interp.system.float64 import double
from interp.system.processes import Ranks


class PromptTensors(Listener):
    """Tensors of some layers, `[prompt, pos, feature]`; 0 after the end of a prompt, and where nothing was put."""

    def __init__(self, lengths: Int[np.ndarray, " prompt"], layers: Iterable[int]) -> None:
        self.lengths, self.layers = lengths, sorted(set(layers))
        self._kept: dict[int, torch.Tensor] = {}
        self._prompts = self._starts = torch.empty(0, dtype=torch.int64)

    def begin(self, batch: Batch) -> None:
        """Set the next batch."""
        self._prompts, self._starts = torch.from_numpy(batch.prompts), torch.from_numpy(batch.starts)

    def put(self, layer: int, x: torch.Tensor) -> None:
        """Keep a tensor of the current batch, `[prompt, pos, feature]`."""
        self._write(layer, self._prompts, x.cpu())

    def of_batch(self, layer: int, n_pos: int) -> torch.Tensor:
        """The kept tensor of the current batch at `n_pos` positions from its start."""
        kept = self._kept[layer]
        position = (self._starts[:, None] + torch.arange(n_pos)).clamp_max(kept.shape[1] - 1)
        return kept[self._prompts[:, None], position]

    def before_batch(self, layer: int) -> torch.Tensor:
        """The kept tensor before the current batch, up to its latest start."""
        return self._kept[layer][self._prompts, : int(self._starts.max())]

    def __getitem__(self, layer: int) -> torch.Tensor:
        return self._kept[layer]

    def join(self, ranks: Ranks, prompts: Int[np.ndarray, " item"]) -> None:
        """Add the prompts of other ranks; this rank has put `prompts`."""
        mine = torch.from_numpy(prompts)
        for layer in () if ranks.is_alone else self.layers:
            for theirs, x in ranks.union((mine, self._kept[layer][mine] if len(mine) else None)):
                if x is not None:
                    self._write(layer, theirs, x)

    def _write(self, layer: int, prompts: torch.Tensor, x: torch.Tensor) -> None:
        if layer not in self._kept:
            self._kept[layer] = x.new_zeros(len(self.lengths), int(self.lengths.max()), x.shape[-1])
        self._kept[layer][prompts, : x.shape[1]] = x


class HeadOutputs(PromptTensors):
    """The head outputs of some layers of every prompt, heads concatenated."""

    def __init__(self, lengths: Int[np.ndarray, " prompt"], layers: Iterable[int]) -> None:
        super().__init__(lengths, layers)
        self._donors: dict[int, np.ndarray] = {}

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        if call.layer in self.layers:
            self.put(call.layer, z.flatten(2))
        return z

    def mean(self, layer: int, rows: RowIndex) -> torch.Tensor:
        """The mean over `rows`, `[1, 1, feature]`, float64."""
        picked = self[layer][torch.from_numpy(rows.prompt), torch.from_numpy(rows.position)]
        return double(picked).mean(dim=0)[None, None]

    def donated(self, layer: int, seed: int, batch: Batch) -> torch.Tensor:
        """For every prompt of the batch, the outputs of its donor at the same positions, `[prompt, pos, feature]`.

        Positions beyond the end of a donor get those of its positions drawn at random.
        """
        donor = self.donors(seed)[batch.prompts]
        positions = np.zeros(batch.ids.shape, dtype=np.int64)  # padding takes the first, and is never read
        for row, prompt in enumerate(batch.prompts.tolist()):
            n, n_donor = int(self.lengths[prompt]), int(self.lengths[donor[row]])
            drawn = np.random.default_rng([seed, 1, prompt]).integers(n_donor, size=max(0, n - n_donor))
            positions[row, :n] = np.concatenate([np.arange(min(n, n_donor)), drawn])
        return self[layer][torch.from_numpy(donor)[:, None], torch.from_numpy(positions)]

    def donors(self, seed: int) -> Int[np.ndarray, " prompt"]:
        """Another prompt for each, drawn among those at least as long, or else among the longest."""
        if len(self.lengths) < 2:
            raise PromptError(
                asked="resampling head outputs",
                found="there is only one prompt",
                fix="Give two prompts or more: each takes the output of another.",
            )
        if seed not in self._donors:
            rng = np.random.default_rng(seed)
            prompts = np.arange(len(self.lengths))
            chosen = []
            for prompt in prompts:
                others = prompts[prompts != prompt]
                long = others[self.lengths[others] >= self.lengths[prompt]]
                longest = others[self.lengths[others] == self.lengths[others].max()]
                chosen.append(int(rng.choice(long if len(long) else longest)))
            self._donors[seed] = np.array(chosen)
        return self._donors[seed]
