"""A `transformers` causal language model: embedding, a stack of blocks, final norm, output head."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class BlockStackConfig(PreTrainedConfig):
    """The sizes of every stack."""

    vocab_size: int = 20
    hidden_size: int = 64
    num_hidden_layers: int = 3
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False


class BlockStack(PreTrainedModel):
    """Embedding, blocks, norm, head; padding is on the right."""

    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config: Any, blocks: Iterable[nn.Module]) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(blocks)
        self.final_norm: nn.Module = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def embed(self, input_ids: Int[torch.Tensor, "batch pos"]) -> Float[torch.Tensor, "batch pos d_model"]:
        """The input of the first block."""
        return self.embed_tokens(input_ids)

    def through_blocks(
        self, x: Float[torch.Tensor, "batch pos d_model"], attention_mask: torch.Tensor | None
    ) -> Float[torch.Tensor, "batch pos d_model"]:
        """The output of the last block."""
        for block in self.layers:
            x = block(x)
        return x

    def forward(
        self,
        input_ids: Int[torch.Tensor, "batch pos"],
        attention_mask: torch.Tensor | None = None,
        logits_to_keep: int | Int[torch.Tensor, " kept"] = 0,
        use_cache: bool | None = None,
    ) -> CausalLMOutput:
        """Logits at all positions (0), the last few (a number) or the given ones; there is no cache."""
        x = self.final_norm(self.through_blocks(self.embed(input_ids), attention_mask))
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        return CausalLMOutput(logits=self.lm_head(x[:, kept]))
