"""The tuned lens: an affine map of each depth, trained on the model's own final prediction.

It starts at the ridge regression of the final residual stream on that of the depth, with a penalty chosen by
cross-validation over clusters. Adam then minimises KL(final prediction || lens); the first fold is held out to choose
the number of steps.

Source: Belrose et al. (2023), arXiv 2303.08112.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.reading.lens import Lens
from interp.system.float64 import double
from interp.system.progress import Report

PENALTIES = (1e-4, 1e-2, 1e-1)
"""Ridge penalties in mean variances of a direction of the residual stream."""

N_FOLDS = 3
_VALIDATION_ROWS = 64
"""Rows of a fold on which a penalty or a number of steps is validated."""

_ROWS_A_STEP = 64
_STEPS_A_LOOK = 20
N_STEPS = 200
_RATE = 1e-3


Map = tuple[torch.Tensor, torch.Tensor]
"""A and b of h -> A h + b."""


@dataclass(frozen=True, eq=False)
class TunedFit:
    """Trains the maps of one model, from its stream `[depth, row, d_model]`; `fold` is that of each row's cluster."""

    lens: Lens
    stream: Float[torch.Tensor, "depth row d_model"]
    fold: Int[np.ndarray, " row"]
    rng: np.random.Generator

    def maps(self, seconds: float | None, progress: Report) -> list[Map]:
        """A map for each depth before the last, with an equal share of the time limit. Call it under `no_grad`."""
        began, n, found = time.monotonic(), len(self.stream) - 1, []
        for depth in range(n):
            until = None if seconds is None else began + seconds * (depth + 1) / n
            found.append(self._descended(depth, self._ridge(depth), until))
            progress(depth + 1, n)
        return found

    @cached_property
    def _left_out(self) -> list[tuple[np.ndarray, torch.Tensor]]:
        """Validation rows of each fold, and their final log-probabilities."""
        rows = [np.flatnonzero(self.fold == fold)[:_VALIDATION_ROWS] for fold in np.unique(self.fold)]
        return [(each, self._predicted(each)) for each in rows]

    def _predicted(self, rows: np.ndarray) -> torch.Tensor:
        return torch.log_softmax(self.lens.logits(self.stream[-1, torch.from_numpy(rows)]), dim=-1)

    def _validation_loss(self, depth: int, fold: int, carry: Map) -> float:
        return float(self._loss(depth, *self._left_out[fold], carry))

    def _of(self, depth: int, rows: np.ndarray) -> torch.Tensor:
        return self.stream[depth, torch.from_numpy(rows)].float()

    def _ridge(self, depth: int) -> Map:
        every, losses = np.arange(len(self.fold)), np.zeros(len(PENALTIES))
        for i, fold in enumerate(np.unique(self.fold)):
            maps = self._ridges(depth, np.flatnonzero(self.fold != fold), PENALTIES)
            losses += [self._validation_loss(depth, i, each) for each in maps]
        return self._ridges(depth, every, [PENALTIES[int(losses.argmin())]])[0]

    def _ridges(self, depth: int, rows: np.ndarray, penalties: Sequence[float]) -> list[Map]:
        x, y = double(self._of(depth, rows)), double(self._of(-1, rows))
        mean_x, mean_y = x.mean(dim=0), y.mean(dim=0)
        x, y = x - mean_x, y - mean_y
        scatter, eye = x.mT @ x, torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        size = scatter.diagonal().mean().clamp_min(torch.finfo(x.dtype).tiny)
        matrices = [torch.linalg.solve(scatter + penalty * size * eye, x.mT @ y).mT for penalty in penalties]
        return [(matrix.float(), (mean_y - matrix @ mean_x).float()) for matrix in matrices]

    def _loss(self, depth: int, rows: np.ndarray, final: torch.Tensor, carry: Map) -> torch.Tensor:
        """Mean KL(final || lens) in nats."""
        carried = self._of(depth, rows) @ carry[0].mT + carry[1]
        read = torch.log_softmax(self.lens.logits(carried.to(self.stream.dtype)), dim=-1)
        return torch.nn.functional.kl_div(read, final, reduction="batchmean", log_target=True)

    def _descended(self, depth: int, start: Map, until: float | None) -> Map:
        kept = np.flatnonzero(self.fold != self.fold.min())
        mine = (start[0].clone().requires_grad_(), start[1].clone().requires_grad_())
        descent = torch.optim.Adam(mine, lr=_RATE)
        best, least = start, self._validation_loss(depth, 0, start)
        for step in range(1, N_STEPS + 1):
            if until is not None and time.monotonic() > until:
                break
            rows = self.rng.choice(kept, min(len(kept), _ROWS_A_STEP), replace=False)
            final = self._predicted(rows)
            with torch.enable_grad():
                descent.zero_grad()
                self._loss(depth, rows, final, mine).backward()
            descent.step()
            if step % _STEPS_A_LOOK == 0:
                now = (mine[0].detach().clone(), mine[1].detach().clone())
                loss = self._validation_loss(depth, 0, now)
                best, least = (now, loss) if loss < least else (best, least)
        return best
