"""Feed-forward networks on a window of tokens: the same MLP at every position.

The embeddings of the last `n_context` tokens (zeros before the sequence) are concatenated and mapped into the residual
stream. With one token of context the network sees no evidence: the papers' strawman.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from interp.family import Family

from .block_stack import BlockStack, BlockStackConfig


class MLPConfig(BlockStackConfig):
    """`n_context`: the number of tokens each position sees, itself included."""

    model_type = "mlp"
    intermediate_size: int = 256
    n_context: int = 1


class FeedForward(nn.Module):
    """Two matrices with an activation between them."""

    def __init__(self, config: Any, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Float[torch.Tensor, "batch pos d_model"]) -> Float[torch.Tensor, "batch pos d_model"]:
        return self.down(self.activation(self.up(x)))


class FeedForwardBlock(nn.Module):
    """x + MLP(norm(x))."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = FeedForward(config, F.gelu)

    def forward(self, x: Float[torch.Tensor, "batch pos d_model"]) -> Float[torch.Tensor, "batch pos d_model"]:
        return x + self.mlp(self.norm(x))


class MLPForCausalLM(BlockStack):
    """A stack of feed-forward blocks on a window of tokens."""

    config_class = MLPConfig

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config, [FeedForwardBlock(config) for _ in range(config.num_hidden_layers)])
        self.join = nn.Linear(config.n_context * config.hidden_size, config.hidden_size, bias=False)
        self.post_init()

    def embed(self, input_ids: Int[torch.Tensor, "batch pos"]) -> Float[torch.Tensor, "batch pos d_model"]:
        n = self.config.n_context
        padded = F.pad(self.embed_tokens(input_ids), (0, 0, n - 1, 0))
        windows = padded.unfold(1, n, 1).transpose(-1, -2)  # [batch, pos, n_context, d_model], the current token last
        return self.join(windows.flatten(-2))


AutoConfig.register("mlp", MLPConfig)
AutoModelForCausalLM.register(MLPConfig, MLPForCausalLM)

FAMILY = Family(name="mlp", layers="layers", final_norm="final_norm", mlp="mlp")
