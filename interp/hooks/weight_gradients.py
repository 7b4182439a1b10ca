"""The gradient of the loss at the projections of one attention layer, laid out by head as these weights are."""

import torch

from interp.hooks.layer_gradients import ScoredSequence, loss_bits, with_attention
from interp.model import Model


def projections(model: Model, layer: int) -> dict[str, torch.Tensor]:
    """The weights of one layer, each `[head, d_model, d_head]`; of shared keys and values `[kv_head, ...]`.

    Raises `UsageError` for a layer without attention, which has none.
    """
    attention = model.family.attention_by_layer(model.module)[with_attention(model, layer)]
    shape, read = model.family.head_shape(model.config), model.family.projection_weight
    return {
        "W_Q": read(attention, "q", shape)[0].detach().clone(),
        "W_K": read(attention, "k", shape)[0].detach().clone(),
        "W_V": read(attention, "v", shape)[0].detach().clone(),
    }


def weight_gradients(model: Model, layer: int, sequence: ScoredSequence) -> dict[str, torch.Tensor]:
    """The gradient of one sequence's loss in bits at every projection of a layer, in the shapes of `projections`.

    For a copy of the model that is the caller's own (`in_float64`): its weights are put back. Where keys are multiplied
    by a scale s, W_K is s times the stored weight, and its gradient that of the stored one over s.
    """
    weights = list(model.family.attention_by_layer(model.module)[with_attention(model, layer)].parameters())
    for weight in weights:
        weight.requires_grad_(True)
    try:
        with torch.enable_grad():
            found = torch.autograd.grad(loss_bits(model, sequence), weights, allow_unused=True)
    finally:
        for weight in weights:
            weight.requires_grad_(False)
    own = [weight.data for weight in weights]
    for weight, gradient in zip(weights, found, strict=True):
        weight.data = torch.zeros_like(weight) if gradient is None else gradient
    try:
        read = projections(model, layer)
        return read | {"W_K": read["W_K"] / model.family.head_shape(model.config).key_scale ** 2}
    finally:
        for weight, kept in zip(weights, own, strict=True):
            weight.data = kept
