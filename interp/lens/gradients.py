"""The residual stream of every depth as part of one graph, and what flows back into it.

With h_l the stream at depth l and h_f that before the final norm, one pass back from a cotangent c at the target
positions gives, at every depth at once and at every source t, Σ_t' c(t')ᵀ ∂h_f[t'] / ∂h_l[t]. Only t' ≥ t count, by
causality. The pass runs with our hooks, so that edits, windows and listeners of the caller act in it.
"""

from contextlib import suppress

import torch

from interp.errors import UsageError
from interp.hooks.attention import Listener, listening
from interp.hooks.block_hooks import block_hooks
from interp.model import Model
from interp.reading.batches import Batch
from interp.reading.early_exit import EnoughRead


def stream_of(model: Model, batch: Batch, *, repeat: int = 1) -> list[torch.Tensor]:
    """The stream `[item, pos, d_model]` of a batch at all depths, the last one being the final stream.

    Each sequence comes `repeat` times, one after the other: [a, a, b, b].
    """
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
    return [found[depth] for depth in range(n_layers + 1)]


def refuse_without_gradients(model: Model) -> None:
    """Raise `UsageError` for a model that gradients do not pass: quantised, or with parts that are offloaded."""
    if model.info.quantisation is not None or "offloaded" in model.info.device:
        raise UsageError(
            asked=f"the gradients of {model.name}",
            found="its weights are quantised" if model.info.quantisation is not None else "parts of it are offloaded",
            fix="Load it whole, in float32 or bfloat16, or read it with the logit lens.",
        )
