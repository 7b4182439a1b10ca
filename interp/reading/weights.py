"""Weights as a capture holds them: the values of the moment when the model was read."""

from collections.abc import Sequence

import numpy as np

from interp.families import iterate_weights
from interp.model import Model
from interp.need import Need
from interp.reading.early_exit import layers_of


def stacked_weights(model: Model, need: Need, layers: Sequence[int] | None = None) -> dict[str, np.ndarray]:
    """`rows` `[layer, head, ...]` in float32, a copy; only of `layers`, in their order, where these are given."""
    wanted = layers_of(need, layers, model.info)
    weights = iterate_weights(model.module, model.family, need.site)  # pyrefly: ignore[bad-argument-type]
    found = np.empty((len(wanted), 0))
    for layer, w in zip(model.info.layers_with_attention, weights, strict=True):
        if layer in wanted:
            if not found.size:
                found = np.empty((len(wanted), *w.shape), dtype=np.float32)
            found[wanted.index(layer)] = w.detach().float().cpu().numpy()
    return {"rows": found}
