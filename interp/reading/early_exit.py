"""How deep a pass has to go: to the last layer that anybody reads, and to the outputs only where those are wanted."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from interp.capture import ModelInfo
from interp.errors import UsageError
from interp.hooks.block_hooks import block_hooks
from interp.model import Model
from interp.need import Need

OF_THE_OUTPUTS = frozenset({"output", "text", "lens"})
"""Sources that are not known before the model has predicted."""


class EnoughRead(Exception):
    """Nobody reads what comes after this point of the pass."""


def layers_of(need: Need, layers: Sequence[int] | None, info: ModelInfo) -> tuple[int, ...]:
    """The layers (depths, of the residual stream and the lens) at which a need is read, in the order asked for.

    None are all of them; negative ones count from the end. What has no layers has the single one 0. Raises `UsageError`
    for a layer that the model does not have, and for one that is named twice.
    """
    layers = layers if need.layers is None else need.layers
    having = info.layers_with_attention if need.described.is_of_attention else None
    if layers is None and having is not None:
        return having
    count = {"layer": info.n_layers, "depth": info.n_layers + 1, "once": 1}[need.described.layers]
    if layers is None or need.described.layers == "once":
        return tuple(range(count))
    found = tuple(layer % count for layer in layers if -count <= layer < count)
    if len(found) < len(layers) or len(set(found)) < len(found) or not found:
        what = "depths" if need.described.layers == "depth" else "layers"
        raise UsageError(
            asked=f"{need.site} at the {what} {', '.join(map(str, layers)) or 'of an empty list'}",
            found=f"{info.name} has the {what} 0 to {count - 1}",
            fix="Name each that you want once; −1 is the last.",
        )
    without = [] if having is None else [layer for layer in found if layer not in having]
    if without:
        raise UsageError(
            asked=f"{need.site} at layer {', '.join(map(str, without))}",
            found=f"{info.name} has attention in the layers {', '.join(map(str, having or ()))} alone",
            fix="Name some of these, or none for all of them; the residual stream can be read everywhere.",
        )
    return found


def depth_of(need: Need, layers: Sequence[int]) -> int | None:
    """The depth of the residual stream that a pass reaches with all of a need read; None: the outputs."""
    source = need.described.source
    if source in OF_THE_OUTPUTS:
        return None
    if source in ("weights", "edit"):
        return 0
    return max(layers) + (need.site != "resid")


def ending(model: Model, depth: int | None) -> AbstractContextManager[object]:
    """Let passes inside the block raise `EnoughRead` at this depth of the residual stream; None lets them end."""
    if depth is None:
        return nullcontext()

    def stop(site: str, layer: int, x: torch.Tensor) -> None:
        raise EnoughRead

    return block_hooks(model, {"resid"}, stop, layers={depth})


def deepest(depths: Sequence[int | None]) -> int | None:
    """The last of several depths; None, the outputs, comes after all."""
    known = [depth for depth in depths if depth is not None]
    return max(known, default=0) if len(known) == len(depths) else None
