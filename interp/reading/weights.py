"""Weights in a capture: copies of the values when the model was read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from interp.families import iterate_weights
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.batches import layers_of
from interp.reading.lens import Lens
from interp.system.offload import brought_in


def stacked_weights(
    model: Model, need: Need, prompts: PromptSet, layers: Sequence[int] | None = None
) -> dict[str, np.ndarray]:
    """`rows` `[layer, head, ...]`, a copy in float32; with `layers`, of these in their order."""
    wanted = layers_of(need, layers, model.info)
    if need.site == "outcome_embedding":
        embedding: Any = model.module.get_input_embeddings()
        with brought_in(embedding):
            return {"rows": embedding.weight.detach()[torch.from_numpy(_outcomes(prompts))].float().cpu().numpy()}
    if need.site == "readout_gram":
        return {"rows": _readout_grams(model, prompts, wanted)}
    weights = iterate_weights(model.module, model.family, need.site)  # pyrefly: ignore[bad-argument-type]
    found = np.empty((len(wanted), 0))
    for layer, w in zip(model.info.layers_with_attention, weights, strict=True):
        if layer in wanted:
            if not found.size:
                found = np.empty((len(wanted), *w.shape), dtype=np.float32)
            found[wanted.index(layer)] = w.detach().float().cpu().numpy()
    return {"rows": found}


@torch.inference_mode()
def _readout_grams(model: Model, prompts: PromptSet, depths: Sequence[int]) -> np.ndarray:
    """Jᵀ G J of every depth, with G the Gram matrix at the final norm of the outcomes, or of all tokens."""
    assert model.lens is not None
    ids = _outcomes(prompts)
    at_norm = Lens(model).token_gram(model.info.d_model, torch.from_numpy(ids) if len(ids) else None)
    carried = [model.lens.carried(torch.eye(model.info.d_model), depth) for depth in depths]  # row i is J e_i
    return np.array([(each @ at_norm @ each.mT).numpy() for each in carried])


def _outcomes(prompts: PromptSet) -> np.ndarray:
    """The ids of the outcomes that all prompts share; empty if they share none."""
    ids = prompts.outcome_ids
    return np.empty(0, np.int64) if ids is None or ids.ndim > 1 else ids
