"""The table of aliases against the models' public configurations, written down here once more."""

import subprocess
import sys

import pytest
from transformers import (
    AutoConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
)

from interp.loading.admission import count_parameters
from interp.loading.aliases import ALIASES
from tests.hub_cache import public_config
from tests.paths import ROOT

# width, layers, heads, vocabulary (padded to a multiple of 128 times the number of pieces it was trained in); and, as a
# card says them, all parameters and those without the two embeddings
PYTHIA = {
    "14m": (128, 6, 4, 50304),
    "31m": (256, 6, 8, 50304),
    "70m": (512, 6, 8, 50304, 70_426_624, 18_915_328),
    "160m": (768, 12, 12, 50304, 162_322_944, 85_056_000),
    "410m": (1024, 24, 16, 50304, 405_334_016, 302_311_424),
    "1b": (2048, 16, 8, 50304, 1_011_781_632, 805_736_448),
    "1.4b": (2048, 24, 16, 50304, 1_414_647_808, 1_208_602_624),
    "2.8b": (2560, 32, 32, 50304, 2_775_208_960, 2_517_652_480),
    "6.9b": (4096, 32, 32, 50432, 6_857_302_016, 6_444_163_072),
    "12b": (5120, 36, 40, 50688, 11_846_072_320, 11_327_027_200),
}


def neox(width: int, layers: int, heads: int, vocab: int, *_: int) -> PreTrainedConfig:
    return GPTNeoXConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        vocab_size=vocab,
    )  # fmt: skip


def llama(width: int, layers: int, heads: int, kv_heads: int, inner: int, vocab: int) -> PreTrainedConfig:
    return LlamaConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=inner, vocab_size=vocab, tie_word_embeddings=True,
    )  # fmt: skip


def from_public(kind: type[PreTrainedConfig], alias: str) -> PreTrainedConfig:
    return kind(**{k: v for k, v in public_config(alias).items() if k != "model_type"})


CONFIGS = {
    **{f"pythia-{size}{suffix}": neox(*shape) for size, shape in PYTHIA.items() for suffix in ("", "-deduped")},
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_embd=1024, n_layer=24, n_head=16),
    "gpt2-large": GPT2Config(n_embd=1280, n_layer=36, n_head=20),
    "gpt2-xl": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
    "phi-2": from_public(type(AutoConfig.for_model("phi")), "phi-2"),
    "llama-3.2-1b": llama(2048, 16, 32, 8, 8192, 128256),
    "llama-3.2-3b": llama(3072, 28, 24, 8, 8192, 128256),
    "smollm2-135m": llama(576, 30, 9, 3, 1536, 49152),
    "smollm2-360m": llama(960, 32, 15, 5, 2560, 49152),
    "smollm2-1.7b": llama(2048, 24, 32, 32, 8192, 49152),
    "mistral-7b": from_public(MistralConfig, "mistral-7b"),
    "mistral-7b-instruct": from_public(MistralConfig, "mistral-7b"),
    "mixtral-8x7b": MixtralConfig(),
}
"""The defaults of transformers are those of the first model of a kind."""


def test_aliases_are_gated_by_conditions_alone_and_need_no_package():
    assert set(ALIASES) == set(CONFIGS)
    gated = {name for name, alias in ALIASES.items() if alias.gated}
    owners = {ALIASES[name].hub_id.split("/")[0] for name in gated}
    assert owners == {"meta-llama", "mistralai"}
    assert not any(name.startswith(("pythia", "phi")) for name in gated)
    code = "import sys, interp.loading.aliases; print(*(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"torch", "transformers", "numpy", "huggingface_hub"} & set(done.stdout.split()) == set()


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_alias_states_the_sizes_and_the_shape_of_its_public_configuration(name):
    alias, public = ALIASES[name], CONFIGS[name]
    n_heads, kv_heads = public.num_attention_heads, getattr(public, "num_key_value_heads", None)
    stated = (alias.family, alias.n_layers, alias.n_heads, alias.n_kv_heads, alias.d_head)
    d_head = public.hidden_size // n_heads
    assert stated == (public.model_type, public.num_hidden_layers, n_heads, kv_heads or n_heads, d_head)
    known = AutoConfig.for_model(alias.family, **alias.shape)
    assert count_parameters(known) == alias.n_parameters == count_parameters(public)
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "num_key_value_heads"):
        assert getattr(known, field, None) == getattr(public, field, None)


@pytest.mark.parametrize("size", [size for size, known in PYTHIA.items() if len(known) > 4])
def test_pythia_parameters_equal_the_model_cards(size):
    width, _, _, vocab, total, without_embeddings = PYTHIA[size]
    assert ALIASES[f"pythia-{size}"].n_parameters == total == without_embeddings + 2 * width * vocab
