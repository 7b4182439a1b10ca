"""The size of an edit, relative to the tensor that it changes.

`rows` is the norm of the change over the norm of the tensor, both over the edited rows of a prompt. `variance_share` is
the variance of the change over that of the tensor, over all edited rows: for an orthogonal subspace that is removed,
the share of variance removed. Sums are float64.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch

from interp.editing.steps import EditStep, SeenStep
from interp.reading.batches import Batch
from interp.statistics.ratio import ratio
from interp.system.float64 import double
from interp.system.processes import Ranks

_Sums = dict[tuple[int, int], tuple[Any, ...]]
"""By edit and layer, over the edited rows: their number, and of the tensor and of its change the sums of squares
`[2, variant, prompt]` and the sums `[2, variant, feature]`."""


class ChangeSizes:
    """The sizes of every step (an edit at a layer), in the order of edits and layers."""

    def __init__(self, steps: Sequence[EditStep], n_variants: int, n_prompts: int) -> None:
        self._nothing = np.zeros((2, n_variants, n_prompts))
        self._sums: _Sums = {(s.index, s.layer): (0, self._nothing, 0.0) for s in steps}
        self._passing: _Sums = {}
        self._prompts: np.ndarray = np.empty(0, dtype=np.int64)

    def begin(self, batch: Batch) -> None:
        """Set the next batch; sums of an interrupted pass are discarded."""
        self._prompts, self._passing = batch.prompts, {}

    def see(self, seen: SeenStep) -> None:
        """Compute the sums of one step of the current pass."""
        before = double(seen.before)
        mask = seen.rows.mask.to(before.device)
        both = torch.stack([before, double(seen.after) - before])
        picked = torch.where(mask[:, :, None], both, 0.0)  # [2, variant, prompt, pos, feature]
        squares = self._nothing.copy()
        squares[:, :, self._prompts] = picked.square().sum(dim=(3, 4)).cpu().numpy()
        key = seen.step.index, seen.step.layer
        self._passing[key] = int(mask.sum()), squares, picked.sum(dim=(2, 3)).cpu().numpy()

    def end(self) -> None:
        """Add the sums of the current pass."""
        self._sums = _added(self._sums, self._passing)

    def join(self, ranks: Ranks) -> None:
        """Add the sums of the other ranks."""
        self._sums = reduce(_added, ranks.union(self._sums))

    def of(self, variant: int) -> dict[str, np.ndarray]:
        """`rows` `[step, prompt]`, `variance_share`, `layer` and `edit` `[step]`; 0/0 is 0."""
        squares = np.stack([squares[:, variant] for _, squares, _ in self._sums.values()], axis=1)
        keys = np.array(list(self._sums))
        return {
            "rows": np.sqrt(np.where(squares[0] > 0, ratio(squares[1], squares[0]), 0.0)),
            "variance_share": np.array([_variance_share(variant, *sums) for sums in self._sums.values()]),
            "edit": keys[:, 0],
            "layer": keys[:, 1],
        }


def _added(mine: _Sums, theirs: _Sums) -> _Sums:
    return mine | {key: tuple(map(add, mine[key], sums)) for key, sums in theirs.items()}


def _variance_share(variant: int, n: int, squares: np.ndarray, total: np.ndarray | float) -> float:
    if isinstance(total, float):  # no pass had edited rows
        return 0.0
    mean_squares = np.square(total[:, variant]).sum(axis=1) / max(n, 1)
    spread = np.maximum(0.0, squares[:, variant].sum(axis=1) - mean_squares)  # of tensor, of change
    return float(ratio(spread[1], spread[0])) if spread[0] > 0 else 0.0
