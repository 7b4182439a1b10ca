"""Short names of the models the field works with, and what their public configurations say.

Sizes are those of the current `main` revision; `n_parameters` counts a tied embedding once. `gated` says that the hub
asks for its conditions to be accepted before the first download; the hub has the last word.
"""

from dataclasses import dataclass

MEMORY = "memory:"
"""Begins the name of a model that was handed over as an object, which no name can load again."""


@dataclass(frozen=True)
class Alias:
    """A hub repository and the sizes of its model; `family` is its `model_type`."""

    hub_id: str
    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    n_parameters: int
    gated: bool = False


_PYTHIA = (
    ("14m", 6, 4, 32, 14_067_712),
    ("31m", 6, 8, 32, 30_494_720),
    ("70m", 6, 8, 64, 70_426_624),
    ("160m", 12, 12, 64, 162_322_944),
    ("410m", 24, 16, 64, 405_334_016),
    ("1b", 16, 8, 256, 1_011_781_632),
    ("1.4b", 24, 16, 128, 1_414_647_808),
    ("2.8b", 32, 32, 80, 2_775_208_960),
    ("6.9b", 32, 32, 128, 6_857_302_016),
    ("12b", 36, 40, 128, 11_846_072_320),
)
"""Size, layers, heads, head size, parameters."""


def _pythia(suffix: str) -> dict[str, Alias]:
    return {
        f"pythia-{size}{suffix}": Alias(
            f"EleutherAI/pythia-{size}{suffix}", "gpt_neox", n_layers, n_heads, n_heads, d_head, n_parameters
        )
        for size, n_layers, n_heads, d_head, n_parameters in _PYTHIA
    }


ALIASES: dict[str, Alias] = {
    **_pythia(""),
    **_pythia("-deduped"),
    "gpt2": Alias("openai-community/gpt2", "gpt2", 12, 12, 12, 64, 124_439_808),
    "gpt2-medium": Alias("openai-community/gpt2-medium", "gpt2", 24, 16, 16, 64, 354_823_168),
    "gpt2-large": Alias("openai-community/gpt2-large", "gpt2", 36, 20, 20, 64, 774_030_080),
    "gpt2-xl": Alias("openai-community/gpt2-xl", "gpt2", 48, 25, 25, 64, 1_557_611_200),
    "phi-2": Alias("microsoft/phi-2", "phi", 32, 32, 32, 80, 2_779_683_840),
    "llama-3.2-1b": Alias("meta-llama/Llama-3.2-1B", "llama", 16, 32, 8, 64, 1_235_814_400, gated=True),
    "llama-3.2-3b": Alias("meta-llama/Llama-3.2-3B", "llama", 28, 24, 8, 128, 3_212_749_824, gated=True),
    "smollm2-135m": Alias("HuggingFaceTB/SmolLM2-135M", "llama", 30, 9, 3, 64, 134_515_008),
    "smollm2-360m": Alias("HuggingFaceTB/SmolLM2-360M", "llama", 32, 15, 5, 64, 361_821_120),
    "smollm2-1.7b": Alias("HuggingFaceTB/SmolLM2-1.7B", "llama", 24, 32, 32, 64, 1_711_376_384),
    "mistral-7b": Alias("mistralai/Mistral-7B-v0.1", "mistral", 32, 32, 8, 128, 7_241_732_096, gated=True),
    "mistral-7b-instruct": Alias("mistralai/Mistral-7B-Instruct-v0.1", "mistral", 32, 32, 8, 128,
                                 7_241_732_096, gated=True),
    "mixtral-8x7b": Alias("mistralai/Mixtral-8x7B-v0.1", "mixtral", 32, 32, 8, 128, 46_702_792_704, gated=True),
}  # fmt: skip
"""Every alias, in the order in which they are listed."""
