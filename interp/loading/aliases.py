"""Short names of common models, and the sizes in their public configurations at the current `main` revision."""

from dataclasses import dataclass
from typing import Any

MEMORY = "memory:"
"""Prefix of the name of a model that was passed as an object and cannot be loaded by name."""


@dataclass(frozen=True)
class Alias:
    """A hub repository and the shape of its model; `family` is its `model_type`, `stored_as` the precision of its file.

    `d_ff` is the width of feed-forward blocks; `is_tied`: embedding and unembedding are one matrix, counted once in
    `n_parameters`; `gated`: the hub requires its conditions to be accepted first.
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
        """The sizes under their names in transformers' configurations."""
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


ALIASES: dict[str, Alias] = {
    **_pythia(""),
    **_pythia("-deduped"),
    "gpt2": Alias("openai-community/gpt2", "gpt2", 12, 12, 12, 64, 124_439_808, 3072, 50257, "float32", is_tied=True),
    "gpt2-medium": Alias("openai-community/gpt2-medium", "gpt2", 24, 16, 16, 64, 354_823_168, 4096,
                         50257, "float32", is_tied=True),
    "gpt2-large": Alias("openai-community/gpt2-large", "gpt2", 36, 20, 20, 64, 774_030_080, 5120,
                        50257, "float32", is_tied=True),
    "gpt2-xl": Alias("openai-community/gpt2-xl", "gpt2", 48, 25, 25, 64, 1_557_611_200, 6400,
                     50257, "float32", is_tied=True),
    "phi-2": Alias("microsoft/phi-2", "phi", 32, 32, 32, 80, 2_779_683_840, 10240, 51200, "float16"),
    "llama-3.2-1b": Alias("meta-llama/Llama-3.2-1B", "llama", 16, 32, 8, 64, 1_235_814_400, 8192,
                          128256, "bfloat16", is_tied=True, gated=True),
    "llama-3.2-3b": Alias("meta-llama/Llama-3.2-3B", "llama", 28, 24, 8, 128, 3_212_749_824, 8192,
                          128256, "bfloat16", is_tied=True, gated=True),
    "smollm2-135m": Alias("HuggingFaceTB/SmolLM2-135M", "llama", 30, 9, 3, 64, 134_515_008, 1536,
                          49152, "bfloat16", is_tied=True),
    "smollm2-360m": Alias("HuggingFaceTB/SmolLM2-360M", "llama", 32, 15, 5, 64, 361_821_120, 2560,
                          49152, "bfloat16", is_tied=True),
    "smollm2-1.7b": Alias("HuggingFaceTB/SmolLM2-1.7B", "llama", 24, 32, 32, 64, 1_711_376_384,
                          8192, 49152, "bfloat16", is_tied=True),
    "mistral-7b": Alias("mistralai/Mistral-7B-v0.1", "mistral", 32, 32, 8, 128, 7_241_732_096,
                        14336, 32000, "bfloat16", gated=True),
    "mistral-7b-instruct": Alias("mistralai/Mistral-7B-Instruct-v0.1", "mistral", 32, 32, 8, 128,
                                 7_241_732_096, 14336, 32000, "bfloat16", gated=True),
    "mixtral-8x7b": Alias("mistralai/Mixtral-8x7B-v0.1", "mixtral", 32, 32, 8, 128, 46_702_792_704,
                          14336, 32000, "bfloat16", gated=True),
}  # fmt: skip
"""Every alias, in the order in which they are listed."""
