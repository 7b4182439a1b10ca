"""How large an edit was: the change against the tensor it was made in, prompt by prompt.

`size` is the norm of the change over the norm of the tensor, both over the edited rows of a prompt. `variance_share`
is the variance of the change over the variance of the tensor, about their means over all edited rows: where an
orthogonal subspace is removed, the share of variance that is gone. Sums run in float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float

from interp.editing.steps import EditedRows, Step
from interp.reading.batches import Batch
from interp.system.processes import Ranks


@dataclass
class _Sums:
    """Over the edited rows: how many, and of tensor and change the sums and squares, `[variant, ...]`."""

    squares: np.ndarray
    count: int = 0
    total: list[torch.Tensor | None] = field(default_factory=lambda: [None, None])

    def take_in(self, other: "_Sums") -> None:
        self.squares += other.squares
        self.count += other.count
        for which, more in enumerate(other.total):
            mine = self.total[which]
            self.total[which] = more if mine is None else mine if more is None else mine + more


class ChangeSizes:
    """The sizes of every step (an edit at a layer), in the order in which edits and layers are named."""

    def __init__(self, steps: Sequence[Step], n_variants: int, n_prompts: int) -> None:
        self._sums = {
            (step.index, step.layer): _Sums(np.zeros((2, n_variants, n_prompts))) for step in steps
        }  # squares: of tensor, of change
        self._prompts: np.ndarray = np.empty(0, dtype=np.int64)
        self._passing: dict[tuple[int, int], _Sums] = {}

    def begin(self, batch: Batch) -> None:
        """Announce the batch that passes next; what a pass has given that was not settled is forgotten."""
        self._prompts = batch.prompts
        self._passing = {}

    def settle(self) -> None:
        """Take in what the pass that was announced has given."""
        for key, sums in self._passing.items():
            self._sums[key].take_in(sums)
        self._passing = {}

    def add(self, step: Step, before: torch.Tensor, after: torch.Tensor, rows: EditedRows) -> None:
        """Take in one pass of one step, `[variant, prompt, pos, feature]`."""
        key = step.index, step.layer
        sums = self._passing.setdefault(key, _Sums(np.zeros_like(self._sums[key].squares)))
        sums.count += int(rows.mask.sum())
        for which, x in enumerate((before, after.double() - before.double())):
            picked = torch.where(rows.mask[None, :, :, None], x.double(), 0.0)
            sums.squares[which][:, self._prompts] += picked.square().sum(dim=(2, 3)).cpu().numpy()
            total, more = sums.total[which], picked.sum(dim=(1, 2)).cpu()
            sums.total[which] = more if total is None else total + more

    def join(self, ranks: Ranks) -> None:
        """Take in what the other ranks have seen."""
        if ranks.is_alone:
            return
        everybodys = ranks.union(self._sums)
        for key in self._sums:
            first, *others = [theirs[key] for theirs in everybodys]
            for other in others:
                first.take_in(other)
            self._sums[key] = first

    def of(self, variant: int) -> dict[str, np.ndarray]:
        """`rows` `[step, prompt]`, `variance_share`, `layer` and `edit` `[step]`; 0/0 is 0: nothing was there."""
        squares = np.stack([s.squares[:, variant] for s in self._sums.values()], axis=1)
        shares = np.array([_variance_share(s, variant) for s in self._sums.values()])
        keys = np.array(list(self._sums))
        return {
            "rows": np.sqrt(_ratio(squares[1], squares[0])),
            "variance_share": shares,
            "edit": keys[:, 0],
            "layer": keys[:, 1],
        }


def _variance_share(sums: _Sums, variant: int) -> float:
    spread = []
    for which in range(2):
        total = sums.total[which]
        mean_square = 0.0 if total is None else float(total[variant].square().sum()) / max(1, sums.count)
        spread.append(sums.squares[which, variant].sum() - mean_square)
    return float(_ratio(np.array(max(0.0, spread[1])), np.array(max(0.0, spread[0]))))


def _ratio(a: Float[np.ndarray, "*shape"], b: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return np.divide(a, b, out=np.zeros_like(a, dtype=np.float64), where=b > 0)
