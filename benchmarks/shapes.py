"""The measured model shapes, with random weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

_CONFIGS = {"gpt_neox": GPTNeoXConfig, "llama": LlamaConfig, "mistral": MistralConfig}
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Shape:
    """A model's configuration and a note."""

    family: str
    sizes: Mapping[str, Any]
    note: str = ""

    def config(self) -> PreTrainedConfig:
        return _CONFIGS[self.family](**self.sizes)


_LLAMA_1B = {
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip

SHAPES: Mapping[str, Shape] = {
    "pythia-410m": Shape(
        "gpt_neox",
        {
            "vocab_size": 50304, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "rotary_pct": 0.25, "max_position_embeddings": 2048,
        },
    ),
    "llama-3.2-1b": Shape("llama", {**_LLAMA_1B, "num_hidden_layers": 4}, "4 of its 16 layers"),
    "llama-3.2-1b-whole": Shape("llama", {**_LLAMA_1B, "num_hidden_layers": 16}),
    "mistral-7b": Shape(
        "mistral",
        {
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": None,
            "max_position_embeddings": 32768,
        },
    ),
}  # fmt: skip


def write_model(shape: Shape, folder: Path, *, has_weights: bool = True, scale: float = 0.02) -> Path:
    """A folder for `from_pretrained`: configuration, a tokenizer of one word and, if `has_weights`, random weights.

    `scale` is the standard deviation of the weights.
    """
    config = shape.config()
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(module).__name__]
    config.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    if has_weights:
        noise = torch.randn(_BLOCK, generator=torch.Generator().manual_seed(0)) * scale
        state = {name: _filled(name, p.shape, noise) for name, p in module.named_parameters()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _filled(name: str, size: torch.Size, noise: torch.Tensor) -> torch.Tensor:
    """The same noise, shifted for every tensor: 400 million draws would take minutes."""
    if "norm" in name:
        return torch.full(size, float(name.endswith("weight")))
    n = size.numel()
    shifted = noise.roll(sum(name.encode()) * 997)
    return shifted.repeat(-(-n // len(noise)))[:n].reshape(size).contiguous()


def _tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<unk>", eos_token="<unk>", pad_token="<unk>"
    )
