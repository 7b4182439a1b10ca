"""Short names of the models the field works with, and what their public configurations say.

Sizes are those of the current `main` revision; `n_parameters` counts a tied embedding once. `gated` says that the hub
asks for its conditions to be accepted before the first download; the hub has the last word.
"""

from dataclasses import dataclass
from typing import Any

MEMORY = "memory:"
"""Begins the name of a model that was handed over as an object, which no name can load again."""


@dataclass(frozen=True)
class Alias:
    """A hub repository and the shape of its model; `family` is its `model_type`, `stored_as` the precision of its file.

    `d_ff` features lie inside a feed-forward block; `is_tied` says that embedding and unembedding are one matrix.
    """

    hub_id: str
    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    n_parameters: int
    d_ff: int
    vocab_size: int
    stored_as: str
    is_tied: bool = False
    gated: bool = False

    @property
    def shape(self) -> dict[str, Any]:
        """What of its public configuration decides shapes and cost, by the names that transformers has for it."""
        named = {
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "hidden_size": self.n_heads * self.d_head,
            "vocab_size": self.vocab_size,
            "dtype": self.stored_as,
            "tie_word_embeddings": self.is_tied,
        }
        if self.family == "gpt2":
            return {**named, "n_inner": self.d_ff}
        if self.n_kv_heads != self.n_heads or self.family == "llama":
            named["num_key_value_heads"] = self.n_kv_heads
        return {**named, "intermediate_size": self.d_ff}


_PYTHIA = (
    ("14m", 6, 4, 32, 14_067_712, 50304),
    ("31m", 6, 8, 32, 30_494_720, 50304),
    ("70m", 6, 8, 64, 70_426_624, 50304),
    ("160m", 12, 12, 64, 162_322_944, 50304),
    ("410m", 24, 16, 64, 405_334_016, 50304),
    ("1b", 16, 8, 256, 1_011_781_632, 50304),
    ("1.4b", 24, 16, 128, 1_414_647_808, 50304),
    ("2.8b", 32, 32, 80, 2_775_208_960, 50304),
    ("6.9b", 32, 32, 128, 6_857_302_016, 50432),
    ("12b", 36, 40, 128, 11_846_072_320, 50688),
)
"""Size, layers, heads, head size, parameters, vocabulary."""


def _pythia(suffix: str) -> dict[str, Alias]:
    return {
        f"pythia-{size}{suffix}": Alias(
            f"EleutherAI/pythia-{size}{suffix}", "gpt_neox", n_layers, n_heads, n_heads, d_head, n_parameters,
            4 * n_heads * d_head, vocab_size, "float16",
        )
        for size, n_layers, n_heads, d_head, n_parameters, vocab_size in _PYTHIA
    }  # fmt: skip


def _gpt2(size: str, n_layers: int, n_heads: int, n_parameters: int) -> Alias:
    d_ff = 4 * 64 * n_heads
    return Alias(
        f"openai-community/{size}", "gpt2", n_layers, n_heads, n_heads, 64, n_parameters, d_ff, 50257, "float32", True
    )


def _llama(size: str, n_layers: int, n_heads: int, d_head: int, n_parameters: int) -> Alias:
    return Alias(
        f"meta-llama/Llama-3.2-{size}", "llama", n_layers, n_heads, 8, d_head, n_parameters, 8192, 128256, "bfloat16",
        is_tied=True, gated=True,
    )  # fmt: skip


def _smollm2(size: str, n_layers: int, n_heads: int, n_kv_heads: int, n_parameters: int, d_ff: int) -> Alias:
    return Alias(
        f"HuggingFaceTB/SmolLM2-{size}", "llama", n_layers, n_heads, n_kv_heads, 64, n_parameters, d_ff, 49152,
        "bfloat16", is_tied=True,
    )  # fmt: skip


def _mistral(name: str, family: str, n_parameters: int) -> Alias:
    return Alias(f"mistralai/{name}", family, 32, 32, 8, 128, n_parameters, 14336, 32000, "bfloat16", gated=True)


ALIASES: dict[str, Alias] = {
    **_pythia(""),
    **_pythia("-deduped"),
    "gpt2": _gpt2("gpt2", 12, 12, 124_439_808),
    "gpt2-medium": _gpt2("gpt2-medium", 24, 16, 354_823_168),
    "gpt2-large": _gpt2("gpt2-large", 36, 20, 774_030_080),
    "gpt2-xl": _gpt2("gpt2-xl", 48, 25, 1_557_611_200),
    "phi-2": Alias("microsoft/phi-2", "phi", 32, 32, 32, 80, 2_779_683_840, 10240, 51200, "float16"),
    "llama-3.2-1b": _llama("1B", 16, 32, 64, 1_235_814_400),
    "llama-3.2-3b": _llama("3B", 28, 24, 128, 3_212_749_824),
    "smollm2-135m": _smollm2("135M", 30, 9, 3, 134_515_008, 1536),
    "smollm2-360m": _smollm2("360M", 32, 15, 5, 361_821_120, 2560),
    "smollm2-1.7b": _smollm2("1.7B", 24, 32, 32, 1_711_376_384, 8192),
    "mistral-7b": _mistral("Mistral-7B-v0.1", "mistral", 7_241_732_096),
    "mistral-7b-instruct": _mistral("Mistral-7B-Instruct-v0.1", "mistral", 7_241_732_096),
    "mixtral-8x7b": _mistral("Mixtral-8x7B-v0.1", "mixtral", 46_702_792_704),
}
"""Every alias, in the order in which they are listed."""
