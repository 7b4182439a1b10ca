"""nnsight: interventions written by hand, with the tests of common scripts.

A head is used if mean ablation, and a direction matters if swapping it, changes the log probability of the right answer
(paired t test over sequences, p .05, not corrected). The directions of a variable are the span of the means of its
values; it appears at the first depth where swapping these, one position at a time, has at least half of its largest
effect.
"""

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats

from .case import Case, Change, class_means, orthonormal


class ByNnsight:
    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        base, size = self._right(case), case.model.info.d_head
        found = set()
        for layer, head in case.heads:
            mine = slice(head * size, (head + 1) * size)

            def mean(x: torch.Tensor, mine: slice = mine) -> torch.Tensor:
                x = x.clone()
                x[..., mine] = x[..., mine].mean(dim=0, keepdim=True)
                return x

            if _differs(base, self._right(case, f"layers.{layer}.attn.o_proj", mean)):
                found.add((layer, head))
        return found

    def depth_of(self, case: Case, variable: str) -> int:
        return case.first_patched(
            variable, lambda depth: self.directions(case, variable, depth),
            lambda depth, patch: self._log_probs(case, _module_at(case, depth), patch).argmax(-1).numpy(),
        )  # fmt: skip

    def directions(self, case: Case, variable: str, depth: int) -> Float[np.ndarray, "axis d_model"]:
        points = case.scored_stream(depth)
        return orthonormal(class_means(points.reshape(-1, points.shape[-1]), case.labels(variable).ravel()))

    def matters(self, case: Case, direction: Float[np.ndarray, " d_model"], depth: int) -> bool:
        swap = case.swap(direction[None] / np.linalg.norm(direction), depth)
        return _differs(self._right(case), self._right(case, _module_at(case, depth), swap))

    def _right(self, case: Case, path: str = "", change: Change | None = None) -> Float[np.ndarray, "sequence scored"]:
        return np.take_along_axis(self._log_probs(case, path, change).numpy(), case.answers[..., None], -1)[..., 0]

    def _log_probs(self, case: Case, path: str = "", change: Change | None = None) -> torch.Tensor:
        from nnsight import NNsight

        traced: Any = NNsight(case.module)
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            with traced.trace(case.tokens):
                if change is not None:
                    envoy = traced
                    for part in path.split("."):
                        envoy = envoy[int(part)] if part.isdigit() else getattr(envoy, part)
                    envoy.input = change(envoy.input)
                logits = traced.output.logits.save()
        return logits[:, case.scored][..., case.outcomes].double().log_softmax(-1)


def _module_at(case: Case, depth: int) -> str:
    return f"layers.{depth}" if depth < case.n_layers else "final_norm"


def _differs(base: Float[np.ndarray, "sequence scored"], other: Float[np.ndarray, "sequence scored"]) -> bool:
    change = (base - other).mean(axis=1)
    return bool(np.ptp(change) > 0 and stats.ttest_1samp(change, 0).pvalue <= 0.05)
