"""A compiled program as a causal language model: attention and ReLU feed-forwards, no normalisation."""

import torch
from jaxtyping import Float, Int
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from interp.family import Family, Layout

from ..networks.block_stack import BlockStack, BlockStackConfig
from ..networks.feedforward import FeedForward


class ProgramConfig(BlockStackConfig):
    """The sizes of a compiled program."""

    model_type = "program"
    num_attention_heads: int = 1
    head_dim: int = 8
    intermediate_size: int = 8
    max_position_embeddings: int = 9


class ProgramAttention(nn.Module):
    """Multi-head attention whose head size is independent of the residual stream."""

    def __init__(self, config: ProgramConfig) -> None:
        super().__init__()
        self.config, self.is_causal = config, True
        self.num_key_value_groups, self.scaling = 1, config.head_dim**-0.5
        size = config.num_attention_heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, size) for _ in range(3))
        self.o_proj = nn.Linear(size, config.hidden_size)

    def forward(
        self, hidden_states: Float[torch.Tensor, "batch pos d_model"], attention_mask: torch.Tensor | None
    ) -> Float[torch.Tensor, "batch pos d_model"]:
        projected = (p(hidden_states) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2) for x in projected)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation or "eager", eager_attention_forward
        )
        z, _ = attend(self, q, k, v, attention_mask, scaling=self.scaling)  # [batch, pos, head, d_head]
        return self.o_proj(z.flatten(-2))


class ProgramBlock(nn.Module):
    """x + attention(x), then + MLP of that."""

    def __init__(self, config: ProgramConfig) -> None:
        super().__init__()
        self.attn, self.mlp = ProgramAttention(config), FeedForward(config, torch.relu)

    def forward(
        self, hidden_states: Float[torch.Tensor, "batch pos d_model"], attention_mask: torch.Tensor | None
    ) -> Float[torch.Tensor, "batch pos d_model"]:
        x = hidden_states + self.attn(hidden_states, attention_mask)
        return x + self.mlp(x)


class ProgramForCausalLM(BlockStack):
    """A compiled program. The logits at a position are over the program's answers at that position."""

    config_class = ProgramConfig
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: ProgramConfig) -> None:
        super().__init__(config, (ProgramBlock(config) for _ in range(config.num_hidden_layers)))
        self.embed_positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.final_norm = nn.Identity()
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def embed(self, input_ids: Int[torch.Tensor, "batch pos"]) -> Float[torch.Tensor, "batch pos d_model"]:
        return self.embed_tokens(input_ids) + self.embed_positions(_positions(input_ids))

    def through_blocks(
        self, x: Float[torch.Tensor, "batch pos d_model"], attention_mask: torch.Tensor | None
    ) -> Float[torch.Tensor, "batch pos d_model"]:
        mask = create_causal_mask(
            self.config, x, attention_mask, None, position_ids=_positions(x)[None]
        )  # the fourth is the cache, whose name depends on the version
        for block in self.layers:
            x = block(x, mask)
        return x


def _positions(of: torch.Tensor) -> Int[torch.Tensor, " pos"]:
    return torch.arange(of.shape[1], device=of.device)


AutoConfig.register("program", ProgramConfig)
AutoModelForCausalLM.register(ProgramConfig, ProgramForCausalLM)

FAMILY = Family(
    name="program",
    layers="layers",
    final_norm="final_norm",
    attention="attn",
    mlp="mlp",
    layout=Layout("separate", ("q_proj", "k_proj", "v_proj")),
    out="o_proj",
    note="compiled RASP programs",
)
