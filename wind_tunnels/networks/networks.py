"""Networks: small `transformers` models with fresh weights, and their predictions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from interp.families import family_of
from interp.loading.quiet_libraries import quiet_libraries
from interp.system.float64 import double
from interp.tunnel import Task

from .architectures import (
    ATTENTION,
    BARE,
    EXPERTS,
    FEED_FORWARD,
    GROUPED,
    WINDOW,
    Network,
    architecture,
)
from .feedforward import MLPConfig
from .recurrent import LSTMConfig, initialise_lstm
from .selective_scan import scan_quickly

FEWEST_POSITIONS = 1024
"""Rotary tables cover at least this and four times a sequence, so that longer sequences can be read."""

TOKENS_AT_ONCE = 64_000
"""Tokens in a batch of predictions, at most."""


@dataclass(frozen=True)
class ModelBuilder:
    """The configuration class of an architecture, and its modules that write to the residual stream.

    `fields` are constants of the configuration. Modules in `keeps` stay as `transformers` initialises them: they are
    rates, not maps. `bare` are matrices, or stacks of them, outside linear modules.
    """

    kind: type[PreTrainedConfig]
    residual_writers: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


def config_of(network: Network, task: Task) -> PreTrainedConfig:
    """The configuration of the network for this task."""
    builder, has = BUILDERS[network.arch], architecture(network.arch)
    found: dict[str, Any] = {
        "vocab_size": task.vocab_size, "hidden_size": network.d_model, "num_hidden_layers": network.n_layers,
        "initializer_range": network.init_std, "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    if FEED_FORWARD in has:
        found["intermediate_size"] = network.d_feed_forward
    if ATTENTION in has:
        found |= {
            "num_attention_heads": network.n_heads,
            "max_position_embeddings": max(FEWEST_POSITIONS, 4 * 2 ** math.ceil(math.log2(task.n_positions))),
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
            "use_cache": False,
        }
    if GROUPED in has:
        found["num_key_value_heads"] = network.n_kv_heads or network.n_heads
    if WINDOW in has:
        found["sliding_window"] = network.window
    if EXPERTS in has:
        found |= {"num_local_experts": network.n_experts, "num_experts_per_tok": network.n_active}
    if BARE in has:
        found["has_residual"] = network.has_residual
    if network.arch == "mlp-context":
        found["n_context"] = task.n_positions
    return builder.kind(**found, **builder.fields)


def build(network: Network, task: Task, generator: torch.Generator) -> PreTrainedModel:
    """A network for the task with fresh float32 weights, drawn from `generator` alone."""
    config = config_of(network, task)
    with torch.random.fork_rng(devices=[]), quiet_libraries():
        if BUILDERS[network.arch].keeps:  # these weights come from the global generator
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        attention = attention_implementation(config)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    _initialise(model, network, generator)
    switch_off_attention(model, network)
    scan_quickly(model)
    return model.eval()


def switch_off_attention(model: PreTrainedModel, network: Network) -> None:
    """Zero and freeze the output projection of attention where the network has none; also after loading weights."""
    family = family_of(model.config)
    for layer in set(range(network.n_layers)) - set(network.attending_layers):
        assert family.out is not None
        for parameter in attrgetter(family.out)(family.attention_modules(model)[layer]).parameters():
            parameter.requires_grad_(False).zero_()


@torch.no_grad()
def _initialise(model: PreTrainedModel, network: Network, generator: torch.Generator) -> None:
    builder = BUILDERS[network.arch]

    def draw(name: str, weight: torch.Tensor) -> None:
        scale = network.residual_scale if name.endswith(builder.residual_writers) else 1.0
        weight.normal_(0.0, network.init_std * scale, generator=generator)

    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, network.embedding_std, generator=generator)
        elif isinstance(module, nn.LSTM):
            initialise_lstm(module, network.init_std, generator)
        elif isinstance(module, nn.Linear) and not name.endswith(builder.keeps):
            draw(name, module.weight)
            if module.bias is not None:
                module.bias.zero_()
    for name, parameter in model.named_parameters():
        if name.endswith(builder.bare):
            draw(name, parameter)


def logits_at(
    model: nn.Module, tokens: Int[torch.Tensor, "sequence pos"], scored: Int[torch.Tensor, " scored"]
) -> Float[torch.Tensor, "sequence scored vocab"]:
    """The logits at the scored positions alone."""
    return model(input_ids=tokens, logits_to_keep=scored, use_cache=False).logits


@torch.inference_mode()
def predict(
    model: nn.Module,
    tokens: Int[np.ndarray, "sequence pos"],
    scored: Int[np.ndarray, " scored"],
    *,
    batch: int = 500,
) -> Float[np.ndarray, "sequence scored vocab"]:
    """Natural log-probabilities of the next token at the scored positions, in float64."""
    at, batch = torch.from_numpy(scored), min(batch, max(1, TOKENS_AT_ONCE // tokens.shape[1]))
    parts = [logits_at(model, torch.from_numpy(tokens[i : i + batch]), at) for i in range(0, len(tokens), batch)]
    return torch.log_softmax(double(torch.cat(parts)), dim=-1).numpy()


def count_parameters(network: Network, task: Task) -> int:
    """The number of parameters of the network for this task, without making weights."""
    with torch.device("meta"), quiet_libraries():
        return AutoModelForCausalLM.from_config(config_of(network, task)).num_parameters()


def attention_implementation(config: PreTrainedConfig) -> str | None:
    """The `attn_implementation` of a network; None without attention."""
    return "sdpa" if family_of(config).has_attention else None


BUILDERS: Mapping[str, ModelBuilder] = {
    "gpt-neox": ModelBuilder(
        GPTNeoXConfig, ("attention.dense", "mlp.dense_4h_to_h"), {"use_parallel_residual": True}
    ),
    "phi": ModelBuilder(PhiConfig, ("self_attn.dense", "mlp.fc2"), {"resid_pdrop": 0.0}),
    "llama": ModelBuilder(LlamaConfig, ("self_attn.o_proj", "mlp.down_proj")),
    "mistral": ModelBuilder(MistralConfig, ("self_attn.o_proj", "mlp.down_proj")),
    "mixtral": ModelBuilder(
        MixtralConfig, ("self_attn.o_proj", "experts.down_proj"),
        bare=("mlp.gate.weight", "experts.gate_up_proj", "experts.down_proj"),
    ),
    "lstm": ModelBuilder(LSTMConfig, ()),
    "mlp-position": ModelBuilder(MLPConfig, ("mlp.down",)),
    "mlp-context": ModelBuilder(MLPConfig, ("mlp.down",)),
    "mamba": ModelBuilder(
        MambaConfig, ("mixer.out_proj",), {"use_cache": False, "residual_in_fp32": False}, keeps=("mixer.dt_proj",)
    ),
}  # fmt: skip
