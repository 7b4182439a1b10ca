"""How large an edit was: the change against the tensor it was made in, prompt by prompt.

`size` is the norm of the change over the norm of the tensor, both over the edited rows of a prompt. `variance_share`
is the variance of the change over the variance of the tensor, about their means over all edited rows: where an
orthogonal subspace is removed, the share of variance that is gone. Sums run in float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.editing.steps import EditStep, SeenStep
from interp.reading.batches import Batch
from interp.system.float64 import double
from interp.system.processes import Ranks


@dataclass
class _Sums:
    """Over the edited rows: how many, and the sums and squares of the tensor and of its change."""

    squares: np.ndarray  # [2, variant, prompt]
    count: int = 0
    total: Any = 0.0  # [2, variant, feature]

    def take_in(self, other: "_Sums") -> None:
        self.squares = self.squares + other.squares
        self.count += other.count
        self.total = self.total + other.total

    def variance_share(self, variant: int) -> float:
        if not self.count:
            return 0.0
        mean_squares = np.square(self.total[:, variant]).sum(axis=1) / self.count
        spread = np.maximum(0.0, self.squares[:, variant].sum(axis=1) - mean_squares)  # of tensor, of change
        return float(_ratio(spread[1:], spread[:1])[0])


class ChangeSizes:
    """The sizes of every step (an edit at a layer), in the order in which edits and layers are named."""

    def __init__(self, steps: Sequence[EditStep], n_variants: int, n_prompts: int) -> None:
        self._nothing = np.zeros((2, n_variants, n_prompts))
        self._sums = {(step.index, step.layer): _Sums(self._nothing) for step in steps}
        self._passing: dict[tuple[int, int], _Sums] = {}
        self._prompts: np.ndarray = np.empty(0, dtype=np.int64)

    def begin(self, batch: Batch) -> None:
        """Announce the batch that passes next; what a pass has given that did not come to its end is forgotten."""
        self._prompts, self._passing = batch.prompts, {}

    def see(self, seen: SeenStep) -> None:
        """Take in one pass of one step."""
        before = double(seen.before)
        mask = seen.rows.mask.to(before.device)
        both = torch.stack([before, double(seen.after) - before])
        picked = torch.where(mask[:, :, None], both, 0.0)  # [2, variant, prompt, pos, feature]
        sums = _Sums(self._nothing.copy(), int(mask.sum()), picked.sum(dim=(2, 3)).cpu().numpy())
        sums.squares[:, :, self._prompts] = picked.square().sum(dim=(3, 4)).cpu().numpy()
        self._passing[seen.step.index, seen.step.layer] = sums

    def end(self) -> None:
        """Keep what the announced pass has given."""
        for key, sums in self._passing.items():
            self._sums[key].take_in(sums)

    def join(self, ranks: Ranks) -> None:
        """Take in what the other ranks have seen."""
        first, *others = ranks.union(self._sums)
        for theirs in others:
            for key, sums in theirs.items():
                first[key].take_in(sums)
        self._sums = first

    def of(self, variant: int) -> dict[str, np.ndarray]:
        """`rows` `[step, prompt]`, `variance_share`, `layer` and `edit` `[step]`; 0/0 is 0: nothing was there."""
        squares = np.stack([s.squares[:, variant] for s in self._sums.values()], axis=1)
        keys = np.array(list(self._sums))
        return {
            "rows": np.sqrt(_ratio(squares[1], squares[0])),
            "variance_share": np.array([s.variance_share(variant) for s in self._sums.values()]),
            "edit": keys[:, 0],
            "layer": keys[:, 1],
        }


def _ratio(a: Float[np.ndarray, "*shape"], b: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return np.divide(a, b, out=np.zeros_like(a, dtype=np.float64), where=b > 0)
