"""Networks: tiny transformers configurations of four families, so that every probe runs on them unchanged.

`gpt-neox` adds attention and MLP in parallel and rotates queries and keys; `phi` does so too, with biases
on every projection; `llama` is sequential with RMS norms, a gated MLP and, if asked, grouped key-value
heads; `mistral` is llama with a sliding window. Checkpoints are what `save_pretrained` writes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PhiConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from interp.errors import UnknownName, UsageError
from interp.tunnel import Task


@dataclass(frozen=True)
class Network:
    """Family and sizes of a transformer, and the spread of its weights at the start.

    `d_mlp` left out is four times `d_model`, two thirds of that where the MLP is gated, so that families match in size.
    `n_kv_heads` below `n_heads` groups the heads (llama, mistral); `window` is how many tokens back
    attention reaches, the token itself included (mistral). `init_std` is the spread of every matrix,
    `embedding_std` of the token embeddings; what each block adds to the residual stream starts out
    `residual_scale` times smaller, without which the identity of the token drowns in the sequential
    families and recall does not form.
    """

    arch: str = "gpt-neox"
    n_layers: int = 3
    n_heads: int = 4
    d_model: int = 64
    d_mlp: int | None = None
    n_kv_heads: int | None = None
    window: int | None = None
    init_std: float = 0.1
    embedding_std: float = 1.0
    residual_scale: float = 0.25

    def __post_init__(self) -> None:
        family(self.arch)
        for name in ("n_layers", "n_heads", "d_model", "d_mlp", "n_kv_heads", "window"):
            size = getattr(self, name)
            may_be_left_out = name in ("d_mlp", "n_kv_heads", "window")
            if not (size is None and may_be_left_out) and (type(size) is not int or size < 1):
                raise self._refusal(f"{name} = {size!r}", "Every size is a whole number, 1 or more.")
        for name in ("init_std", "embedding_std", "residual_scale"):
            spread = getattr(self, name)
            if not isinstance(spread, int | float) or not 0 < spread < math.inf:
                raise self._refusal(f"{name} = {spread!r}", "It is a number above 0.")
        if self.d_model % (2 * self.n_heads):
            raise self._refusal(
                f"{self.n_heads} heads do not divide d_model = {self.d_model} into even parts",
                f"Rotary embedding turns pairs of dimensions: take a multiple of {2 * self.n_heads}.",
            )
        if self.n_kv_heads is not None and self.arch not in ("llama", "mistral"):
            raise self._refusal(f"{self.arch} has no grouped heads", "Use llama or mistral, or leave n_kv_heads out.")
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise self._refusal(
                f"{self.n_kv_heads} key-value heads do not divide {self.n_heads} heads",
                "Choose n_kv_heads that divides n_heads.",
            )
        if self.window is not None and self.arch != "mistral":
            raise self._refusal(f"{self.arch} has no window", "Use mistral, or leave the window out.")

    def _refusal(self, found: str, fix: str) -> UsageError:
        return UsageError(asked=f"a {self.arch} network", found=found, fix=fix)


@dataclass(frozen=True)
class Family:
    """How an architecture is configured, and which of its modules write to the residual stream."""

    config: Callable[[Network, Task], PreTrainedConfig]
    residual_writers: tuple[str, str]
    has_gate: bool = False


def family(arch: str) -> Family:
    """The family of this name; an unknown one lists the nearest."""
    if arch not in FAMILIES:
        raise UnknownName("architecture", arch, FAMILIES)
    return FAMILIES[arch]


def build(network: Network, task: Task, generator: torch.Generator) -> PreTrainedModel:
    """A network for the task with fresh float32 weights, drawn from `generator` alone."""
    kind = family(network.arch)
    with torch.random.fork_rng(devices=[]):  # transformers draws weights of its own, from the global generator
        model = AutoModelForCausalLM.from_config(
            kind.config(network, task), dtype=torch.float32, attn_implementation="sdpa"
        )
    _initialise(model, network, generator)
    return model.eval()


@torch.no_grad()
def _initialise(model: PreTrainedModel, network: Network, generator: torch.Generator) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(0.0, network.embedding_std, generator=generator)
        elif isinstance(module, nn.Linear):
            is_writer = name.endswith(family(network.arch).residual_writers)
            std = network.init_std * (network.residual_scale if is_writer else 1.0)
            module.weight.normal_(0.0, std, generator=generator)
            if module.bias is not None:
                module.bias.zero_()


def logits_at(
    model: nn.Module, tokens: Int[torch.Tensor, "sequence pos"], scored: Int[torch.Tensor, " scored"]
) -> Float[torch.Tensor, "sequence scored vocab"]:
    """The logits at the scored positions; no other is computed."""
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
    at = torch.from_numpy(scored)
    parts = [logits_at(model, torch.from_numpy(tokens[i : i + batch]), at) for i in range(0, len(tokens), batch)]
    return torch.log_softmax(torch.cat(parts).double(), dim=-1).numpy()


def n_parameters(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(p.numel() for p in model.parameters())


def _shared(network: Network, task: Task) -> dict[str, Any]:
    # A power of two above the sequence: rotary tables are cut to it, and nothing is learned per position.
    n_positions = 2 ** math.ceil(math.log2(max(task.n_positions, 2)))
    return {
        "vocab_size": task.vocab_size,
        "hidden_size": network.d_model,
        "num_hidden_layers": network.n_layers,
        "num_attention_heads": network.n_heads,
        "intermediate_size": network.d_mlp or _matched_width(network),
        "max_position_embeddings": n_positions,
        "initializer_range": network.init_std,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "use_cache": False,
    }


def _matched_width(network: Network) -> int:
    """Four times the model's width; a gated MLP has three matrices where the others have two."""
    return 8 * network.d_model // 3 if family(network.arch).has_gate else 4 * network.d_model


def _neox(network: Network, task: Task) -> PreTrainedConfig:
    return GPTNeoXConfig(**_shared(network, task), use_parallel_residual=True)


def _phi(network: Network, task: Task) -> PreTrainedConfig:
    return PhiConfig(**_shared(network, task), resid_pdrop=0.0, embd_pdrop=0.0)


def _llama(network: Network, task: Task) -> PreTrainedConfig:
    return LlamaConfig(**_shared(network, task), num_key_value_heads=network.n_kv_heads or network.n_heads)


def _mistral(network: Network, task: Task) -> PreTrainedConfig:
    return MistralConfig(
        **_shared(network, task),
        num_key_value_heads=network.n_kv_heads or network.n_heads,
        sliding_window=network.window,
    )


FAMILIES: Mapping[str, Family] = {
    "gpt-neox": Family(_neox, ("attention.dense", "mlp.dense_4h_to_h")),
    "phi": Family(_phi, ("self_attn.dense", "mlp.fc2")),
    "llama": Family(_llama, ("self_attn.o_proj", "mlp.down_proj"), has_gate=True),
    "mistral": Family(_mistral, ("self_attn.o_proj", "mlp.down_proj"), has_gate=True),
}
