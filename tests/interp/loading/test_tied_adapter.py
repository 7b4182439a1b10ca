"""Adapters of models whose embeddings are one weight: what is merged is what PEFT computes beside the base."""

from typing import NamedTuple

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import interp
from interp.errors import ModelError
from interp.loading.quiet_libraries import quiet_libraries
from tests.quick import quick

peft = pytest.importorskip("peft", reason="the extra peft is not installed")

SIZES = {"vocab_size": 101, "initializer_range": 0.2, "tie_word_embeddings": True}


class Names(NamedTuple):
    read: str
    write: str
    attention: str


KINDS = {
    "llama": (
        lambda: LlamaForCausalLM(LlamaConfig(**SIZES, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                                             num_attention_heads=2, max_position_embeddings=64)),
        Names("embed_tokens", "lm_head", "q_proj"),
    ),
    "gpt2": (
        lambda: GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=24, n_layer=2, n_head=2, n_positions=64)),
        Names("wte", "lm_head", "c_attn"),
    ),
}  # fmt: skip
ADAPTERS = {
    "head": lambda names: {"target_modules": [names.write]},
    "embedding": lambda names: {"target_modules": [names.read]},
    "both": lambda names: {"target_modules": [names.read, names.write, names.attention]},
    "both as one": lambda names: {"target_modules": [names.read, names.attention], "ensure_weight_tying": True},
    "head by DoRA": lambda names: {"target_modules": [names.write, names.attention], "use_dora": True},
    "embedding by DoRA": lambda names: {"target_modules": [names.read], "use_dora": True},
    "head saved whole": lambda names: {"target_modules": [names.attention], "modules_to_save": [names.write]},
    "embedding saved whole": lambda names: {"target_modules": [names.attention], "modules_to_save": [names.read]},
    "a few tokens": lambda names: {"target_modules": [names.attention], "trainable_token_indices": [3, 5, 9]},
}


def made(kind, adapter, folder, tokenizer):
    """Base and adapter as they lie on disk, every tensor of the adapter random, and PEFT's reading of both."""
    torch.manual_seed(0)
    build, names = KINDS[kind]
    with quiet_libraries():
        build().save_pretrained(folder / "base")
        tokenizer.save_pretrained(folder / "base")
        config = peft.LoraConfig(
            r=4, lora_alpha=8, init_lora_weights=False, task_type="CAUSAL_LM", **ADAPTERS[adapter](names)
        )
        trained = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder / "base"), config)
        with torch.no_grad():
            for parameter in (p for p in trained.parameters() if p.requires_grad):
                parameter.add_(torch.randn_like(parameter) * 0.2)
        trained.save_pretrained(folder / "adapter")
        base = AutoModelForCausalLM.from_pretrained(folder / "base")
        return peft.PeftModel.from_pretrained(base, folder / "adapter").eval()


@torch.inference_mode()
@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("kind", quick(["llama"], KINDS))
def test_an_adapter_of_tied_embeddings_reads_as_peft_runs_it(kind, adapter, tmp_path, word_tokenizer):
    theirs = made(kind, adapter, tmp_path, word_tokenizer)
    model, ids = interp.load(tmp_path / "base", adapter=tmp_path / "adapter"), torch.arange(3, 90, 7)[None]
    expected = theirs(input_ids=ids, output_hidden_states=True)
    found = model.module(input_ids=ids, output_hidden_states=True)
    for ours, own in ((found.logits, expected.logits), (found.hidden_states[0], expected.hidden_states[0])):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-4)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "base")(input_ids=ids).logits
    assert (plain - expected.logits).abs().max() > 0.1, "the adapter acts"
    (check,) = (check for check in model.checks if check.name == "adapter")
    assert check.passed and check.value <= check.bound


@pytest.mark.parametrize("adapter", ["head", "embedding", "both"])
def test_the_check_sees_a_change_of_the_shared_weight(adapter, tmp_path, word_tokenizer, monkeypatch):
    made("llama", adapter, tmp_path, word_tokenizer)
    monkeypatch.setattr("interp.loading.adapter._part_shared_weights", lambda adapted: None)
    with pytest.raises(ModelError, match="its predictions differ from those of PEFT"):
        interp.load(tmp_path / "base", adapter=tmp_path / "adapter")
