"""TransformerLens: hooks and activation patching, with a percentile bootstrap over sequences.

The effect is on the margin of the right answer over the best wrong one. A head is used if zero ablation, and a
direction matters if swapping it, has a mean effect whose 95 % bootstrap interval excludes 0. A variable appears at the
first depth where patching the stream, one position at a time, has at least half of its largest effect towards the
donor's answers. Patching finds no direction.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from .case import Case

N_BOOTSTRAP = 1000


class ByTransformerLens:
    def __init__(self) -> None:
        self._model: tuple[Case, Any] | None = None

    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        base = self._margin(case)

        def zeroed(z: torch.Tensor, hook: Any, head: int) -> torch.Tensor:
            z[:, :, head] = 0
            return z

        return {
            (layer, head) for layer, head in case.heads
            if _differs(case, base - self._margin(case, (f"z.{layer}", partial(zeroed, head=head))))
        }  # fmt: skip

    def depth_of(self, case: Case, variable: str) -> int:
        return case.first_patched(
            variable, lambda _: np.eye(case.model.info.d_model),
            lambda depth, patch: self._outcomes(case, self._at(case, depth, patch)).argmax(-1).numpy(),
        )  # fmt: skip

    def matters(self, case: Case, direction: Float[np.ndarray, " d_model"], depth: int) -> bool:
        frame = direction[None] / np.linalg.norm(direction)
        swapped = self._margin(case, self._at(case, depth, case.swap(frame, depth)))
        return _differs(case, self._margin(case) - swapped)

    def _at(self, case: Case, depth: int, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[str, Callable]:
        return f"resid.{depth}", lambda x, hook: change(x)

    def _margin(self, case: Case, *hooks: tuple[str, Callable]) -> Float[np.ndarray, "sequence scored"]:
        logits = self._outcomes(case, *hooks).numpy()
        right = np.take_along_axis(logits, case.answers[..., None], axis=-1)[..., 0]
        wrong = logits.copy()
        np.put_along_axis(wrong, case.answers[..., None], -np.inf, axis=-1)
        return right - wrong.max(axis=-1)

    @torch.inference_mode()
    def _outcomes(self, case: Case, *hooks: tuple[str, Callable]) -> Float[torch.Tensor, "sequence scored outcome"]:
        if self._model is None or self._model[0] is not case:
            self._model = case, _hooked(case)
        logits = self._model[1].run_with_hooks(case.tokens, fwd_hooks=list(hooks))
        return logits[:, case.scored][..., case.outcomes].double()


def _differs(case: Case, change: Float[np.ndarray, "sequence scored"]) -> bool:
    by_sequence = change.mean(axis=1)
    rng = np.random.default_rng(case.noise.seed)
    n = len(by_sequence)
    means = by_sequence[rng.integers(0, n, (N_BOOTSTRAP, n))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return bool(low > 0 or high < 0)


def _hooked(case: Case) -> Any:
    """The program between hook points: version 4 builds known architectures only, and has this class for the others."""
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.HookedRootModule import HookedRootModule

    class HookedProgram(HookedRootModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = copy.deepcopy(case.module)
            blocks, size = self.inner.layers, case.model.info.d_head
            self.resid, self.z = (torch.nn.ModuleList(HookPoint() for _ in range(len(blocks) + 1)) for _ in range(2))
            for point, block in zip(self.resid, (*blocks, self.inner.final_norm), strict=True):
                block.register_forward_pre_hook(lambda _, args, point=point: (point(args[0]), *args[1:]))
            for point, block in zip(self.z, blocks, strict=False):
                block.attn.o_proj.register_forward_pre_hook(
                    lambda _, args, point=point: (point(args[0].unflatten(-1, (-1, size))).flatten(-2),)
                )
            self.setup()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.inner(tokens).logits

    return HookedProgram().eval()
