"""LSTM networks.

Source: Hochreiter and Schmidhuber (1997); forget gate: Gers and others (2000), open at first: Jozefowicz (2015).
"""

import torch
from jaxtyping import Float
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from interp.family import Family

from .block_stack import BlockStack, BlockStackConfig


class LSTMConfig(BlockStackConfig):
    """`has_residual`: every layer has a norm and a residual connection."""

    model_type = "lstm"
    has_residual: bool = True


class RecurrentBlock(nn.Module):
    """One LSTM layer as wide as the residual stream."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps) if config.has_residual else None
        self.lstm = nn.LSTM(size, size, batch_first=True)

    def forward(self, x: Float[torch.Tensor, "batch pos d_model"]) -> Float[torch.Tensor, "batch pos d_model"]:
        if self.norm is None:
            return self.lstm(x)[0]
        return x + self.lstm(self.norm(x))[0]


class LSTMForCausalLM(BlockStack):
    """A stack of LSTM layers."""

    config_class = LSTMConfig

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__(config, [RecurrentBlock(config) for _ in range(config.num_hidden_layers)])
        self.post_init()


@torch.no_grad()
def initialise_lstm(lstm: nn.LSTM, std: float, generator: torch.Generator) -> None:
    """Normal weights; biases are 0, and 1 for the forget gate."""
    for name, parameter in lstm.named_parameters():
        if name.startswith("weight"):
            parameter.normal_(0.0, std, generator=generator)
        else:
            parameter.zero_()
        if name.startswith("bias_ih"):
            parameter[lstm.hidden_size : 2 * lstm.hidden_size] = 1.0  # gates lie in the order input, forget, cell, out


AutoConfig.register("lstm", LSTMConfig)
AutoModelForCausalLM.register(LSTMConfig, LSTMForCausalLM)

FAMILY = Family(name="lstm", layers="layers", final_norm="final_norm")
