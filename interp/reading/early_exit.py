"""How deep a pass has to go: to the last layer that anybody reads, and to the outputs only where those are wanted."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from interp.capture import ModelInfo
from interp.hooks.block_hooks import block_hooks
from interp.model import Model
from interp.need import Need
from interp.system.plain_numbers import from_0


class EnoughRead(Exception):
    """Nobody reads what comes after this point of the pass."""


def layers_of(need: Need, layers: Sequence[int] | None, info: ModelInfo) -> tuple[int, ...]:
    """The layers (depths, of the residual stream and the lens) at which a need is read, in the order asked for.

    None are all of them; negative ones count from the end. What has no layers has the single one 0. Raises `UsageError`
    for a layer that the model does not have, and for one that is named twice.
    """
    layers, site = layers if need.layers is None else need.layers, need.described
    count = {"layer": info.n_layers, "depth": info.n_layers + 1, "once": 1}[site.layers]
    if layers is None or site.layers == "once":
        return info.layers_with_attention if site.is_of_attention else tuple(range(count))
    asked = f"{need.site} at {site.layers} {', '.join(map(str, layers)) or 'none'}"
    found = from_0(asked, layers, count, f"{info.name} has the {site.layers}s")
    if site.is_of_attention:
        info.refuse_without_attention(asked, found)
    return found


def depth_of(need: Need, layers: Sequence[int], info: ModelInfo) -> int:
    """The depth of the residual stream that a pass reaches with all of a need read; the outputs lie behind the last."""
    is_of_outputs = need.described.source in ("output", "text", "lens")
    return info.n_layers + 1 if is_of_outputs else max(layers) + (need.site != "resid")


def ending(model: Model, depth: int) -> AbstractContextManager[object]:
    """Let passes inside the block raise `EnoughRead` at this depth of the residual stream; none does at the outputs."""
    if depth > model.info.n_layers:
        return nullcontext()

    def stop(site: str, layer: int, x: torch.Tensor) -> None:
        raise EnoughRead

    return block_hooks(model, {"resid"}, stop, layers={depth})
