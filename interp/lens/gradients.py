"""The residual stream of every depth as part of one graph, and what flows back into it.

With h_l the stream at depth l and h_f that before the final norm, one pass back from a cotangent c at the target
positions gives, at every depth at once and at every source t, Σ_t' c(t')ᵀ ∂h_f[t'] / ∂h_l[t]. Only t' ≥ t count, by
causality. The pass goes through the seam, so that edits, windows and listeners of the caller act in it.
"""

from contextlib import suppress
from dataclasses import dataclass

import torch

from interp.errors import UsageError
from interp.model import Model
from interp.reading.batches import Batch
from interp.reading.early_exit import EnoughRead
from interp.seam.attention import Listener, listening
from interp.seam.block_hooks import block_hooks


@dataclass(frozen=True)
class Stream:
    """The stream `[item, pos, d_model]` at all depths of one pass; the last one is the final stream."""

    by_depth: list[torch.Tensor]

    @property
    def final(self) -> torch.Tensor:
        return self.by_depth[-1]

    def back(self, cotangent: torch.Tensor, of: torch.Tensor | None = None, *, is_last: bool) -> list[torch.Tensor]:
        """What flows back from `of` (the final stream) to each depth before the last, `[item, pos, d_model]`.

        The graph is freed with the last pass.
        """
        end = self.final if of is None else of
        return list(torch.autograd.grad(end, self.by_depth[:-1], cotangent, retain_graph=not is_last))


def stream_of(model: Model, batch: Batch, *, repeat: int = 1) -> Stream:
    """The stream of a batch, each of its sequences `repeat` times one after the other: [a, a, b, b]."""
    found: dict[int, torch.Tensor] = {}
    n_layers = model.info.n_layers

    def heard(site: str, depth: int, x: torch.Tensor) -> None:
        found[depth] = x if x.requires_grad else x.requires_grad_()
        if depth == n_layers:
            raise EnoughRead

    ids, layout = batch.ids, batch.layout
    if repeat > 1:
        ids = ids.repeat_interleave(repeat, dim=0)
        layout = {name: x.repeat_interleave(repeat, dim=0) if len(x) > 1 else x for name, x in layout.items()}
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        listening(model, Listener()),
        block_hooks(model, {"resid"}, heard),
        suppress(EnoughRead),
    ):
        model.module(input_ids=ids, use_cache=False, **layout)
    return Stream([found[depth] for depth in range(n_layers + 1)])


def refuse_without_gradients(model: Model) -> None:
    """Raise `UsageError` for a model that gradients do not pass: quantised, or with parts that are offloaded."""
    if model.info.quantisation is not None or "offloaded" in model.info.device:
        raise UsageError(
            asked=f"the gradients of {model.name}",
            found="its weights are quantised" if model.info.quantisation is not None else "parts of it are offloaded",
            fix="Load it whole, in float32 or bfloat16, or read it with the logit lens.",
        )
