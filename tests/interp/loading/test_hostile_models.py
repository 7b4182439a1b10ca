"""Models that are damaged or lie about themselves: rejected, or read as what they are, and nothing runs."""

import io
import json
import math
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import dynamic_module_utils

import interp
from interp.errors import InterpError, ModelError, UsageError
from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from tests.interp.loading.test_refusals import refusal
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_model

IDS = torch.tensor([[3, 14, 15, 92, 65]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.layers.1.self_attn.v_proj.weight", "lm_head.weight"]
)
def test_a_weight_that_is_no_number_is_refused_wherever_it_stands(spoilt, name, value):
    """In the embedding of token 50, say, which none of the few tokens of the self-check is."""

    def hurt(tensors):
        tensors[name][min(50, len(tensors[name]) - 1), 7] = value

    message = refusal(spoilt(tensors=hurt))
    assert "the self-check 'finite' failed: weights and logits are finite; " in message
    assert "tensors of weights that hold NaN or infinity: 1, at most 0 allowed" in message
    assert "copy its weights again" in message


def test_float16_that_overflows_is_refused_at_loading_or_in_the_run(spoilt):
    folder = spoilt(tensors=lambda tensors: tensors["lm_head.weight"].mul_(3e4))
    assert load(folder).info.dtype == "float32"
    message = refusal(folder, dtype="float16")
    assert "the self-check 'finite' failed" in message and "Load it in float32 (it was read in float16)" in message
    # Weights and the self-check's tokens are finite, the tokens of a prompt are not.
    model = fresh_model("llama")
    model.module.half()
    with torch.no_grad():
        model.module.lm_head.weight[7] = 6e4
    model = replace(model, info=replace(model.info, dtype="float16"))
    prompts = PromptSet("ids", [Prompt(token_ids=(5, 6, 7, i)) for i in range(8, 20)])
    with pytest.raises(ModelError, match=r"the logits are not finite\n  Load the model in float32"):
        interp.collect(model, prompts, ["outcome_log_prob", "v"])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_the_configuration_ties_but_the_files_hold_is_read_and_said(spoilt, family):
    folder = spoilt(family, config={"tie_word_embeddings": True})
    model = load(folder)
    with torch.no_grad():
        assert torch.equal(model.module(IDS).logits, tiny_model(family).module(IDS).logits)
    assert model.checks[0].detail == (
        "config.json says that the head is the embedding, but the files have a separate head, which is used"
    )


def test_a_tied_head_is_one_tensor_and_nothing_is_said(tmp_path, word_tokenizer):
    fresh_model("llama", tie_word_embeddings=True).module.save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    model = load(tmp_path)
    assert model.module.get_output_embeddings().weight is model.module.get_input_embeddings().weight
    assert model.checks[0].detail == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model.layers.9.mlp.up_proj.weight", torch.ones(2), r"no place in the blocks for 1 tensors \(model.layers.9"),
        ("model.layers.0.self_attn.q_norm.weight", torch.ones(2), r"for 1 tensors \(model.layers.0.self_attn.q_norm"),
        ("layers.1.self_attn.q_proj.bias", torch.ones(2), r"for 1 tensors \(layers.1.self_attn.q_proj.bias"),
        ("model.layers.1.self_attn.v_proj.weight", None, r"they lack 1 tensors \(model.layers.1.self_attn.v"),
    ],
)
def test_tensors_of_blocks_without_a_place_or_that_are_missing_are_refused(spoilt, name, value, said):
    """They are of more layers, or of layers that do more: without them it is another model."""

    def change(tensors):
        tensors.pop(name) if value is None else tensors.update({name: value})

    with pytest.raises(ModelError, match=said):
        load(spoilt(tensors=change))


def test_what_is_vouched_for_is_what_is_read_where_one_file_and_shards_lie_together(spoilt):
    folder = spoilt()
    tiny_model("llama").module.save_pretrained(folder, max_shard_size="100KB")
    assert (folder / "model.safetensors.index.json").exists() and len(list(folder.glob("*-of-*"))) > 1
    whole = fresh_model("llama", rms_norm_eps=1e-6).module
    whole.lm_head.weight.data.mul_(2)
    save_file(
        {k: v.contiguous() for k, v in whole.state_dict().items()}, folder / "model.safetensors", {"format": "pt"}
    )
    assert torch.equal(load(folder).module.lm_head.weight, whole.lm_head.weight)
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    assert "model.safetensors is truncated or corrupt" in refusal(folder)


def test_an_adapter_beside_the_weights_or_a_configuration_without_end_is_refused(spoilt):
    folder = spoilt()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "../elsewhere", "peft_type": "LORA"}')
    assert "there is also an adapter (adapter_config.json)" in refusal(folder)
    (folder / "config.json").write_text('{"a": ' * 100_000)
    assert "config.json cannot be read" in refusal(folder)


class Touch:
    """Unpickled by plain pickle, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_not_looked_at_beside_safetensors_even_where_allowed(tmp_path, spoilt):
    folder, trace = spoilt(), tmp_path / "it-ran"
    torch.save({"lm_head.weight": Touch(trace)}, folder / "pytorch_model.bin")
    model = load(folder, allow_pickle=True)
    with torch.no_grad():
        assert torch.equal(model.module(IDS).logits, tiny_model("llama").module(IDS).logits)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Touch(trace)))
    assert trace.exists(), "it would have left its file"


@pytest.mark.parametrize("kind", ["torch", "plain", "text", "empty"])
def test_a_hostile_pickle_runs_nothing_and_is_refused(spoilt, tmp_path, kind):
    folder, trace = spoilt(), tmp_path / "it-ran"
    (folder / "model.safetensors").unlink()
    buffer = io.BytesIO()
    torch.save({"lm_head.weight": Touch(trace)}, buffer)
    content = {"torch": buffer.getvalue(), "plain": pickle.dumps(Touch(trace)), "text": b"weights", "empty": b""}
    (folder / "pytorch_model.bin").write_bytes(content[kind])
    assert "they are pickled (pytorch_model.bin)" in refusal(folder)
    assert "transformers cannot read them" in refusal(folder, allow_pickle=True)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("family", "lie", "words"),
    [
        ("gpt_neox", {"hidden_dropout": math.nan}, "hidden_dropout is not a number"),
        ("phi", {"embd_pdrop": math.nan}, "embd_pdrop is not a number"),
        ("phi", {"resid_pdrop": math.nan}, "resid_pdrop is not a number"),
        ("llama", {"attention_dropout": math.nan}, "attention_dropout is not a number"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": math.nan}}, "rope_parameters.rope_theta"),
        ("gpt_neox", {"hidden_dropout": 3.0}, "no model can be built from it"),
        ("llama", {"sliding_window": "all"}, "sliding_window is 'all', not a number of tokens"),
        ("llama", {"quantization_config": 7}, "quantization_config is 7, not an object"),
        ("llama", {"quantization_config": [1]}, "quantization_config is [1], not an object"),
        ("llama", {"num_labels": 10**9}, "num_labels is 1000000000"),
        ("llama", {"num_key_value_heads": 0}, "no model can be built from it"),
        ("llama", {"num_attention_heads": 6}, "tensors have another shape than config.json says"),
        ("llama", {"num_key_value_heads": 4}, "k_proj"),
        ("llama", {"hidden_size": 64, "head_dim": 12}, "48"),
        ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "its weights are quantised"),
        ("llama", {"num_hidden_layers": 1}, "no place in the blocks for 18 tensors"),
        ("llama", {"num_hidden_layers": 4}, "they lack 9 tensors"),
        ("mistral", {"sliding_window": -1}, "the self-check 'eager' failed"),
        ("mistral", {"sliding_window": 0}, "the self-check 'eager' failed"),
        ("llama", {"hidden_act": "<script>"}, "no model can be built from it"),
        ("llama", {"model_type": "gpt_neox"}, "they lack 33 tensors"),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else None,
)
def test_a_lie_that_cannot_be_read_is_refused_by_its_name(spoilt, family, lie, words):
    assert words in refusal(spoilt(family, config=lie))


def test_models_that_cannot_run_are_refused_with_what_to_set(spoilt):
    with pytest.raises(UsageError, match=r"(?s)return_dict=False.*`return_dict` in its config\.json"):
        load(spoilt("llama", config={"return_dict": False}))
    module = fresh_model("gpt_neox").module
    module.gpt_neox.emb_dropout.p = math.nan
    assert "it cannot read 4 tokens: RuntimeError: dropout probability has to be between 0 and 1" in refusal(module)


def test_a_lie_about_heads_that_fits_the_shapes_is_what_the_model_then_is(spoilt):
    """GPT-NeoX's weights have the same shape for any number of heads: the file is believed, and the record says it."""
    model = load(spoilt("gpt_neox", config={"num_attention_heads": 6}))
    assert (model.info.n_heads, model.info.d_head) == (6, 8)
    prompts = PromptSet("ids", [Prompt(token_ids=tuple(range(i, i + 6))) for i in range(1, 9)])
    assert interp.collect(model, prompts, ["v"])[Need("v")].shape == (3, 8, 6, 8)


@pytest.mark.parametrize(
    "named", ["flash_attention_2", "kernels-community/flash-attn", "owner/name@main:function", "eager", "evil"]
)
@pytest.mark.parametrize("key", ["_attn_implementation", "_attn_implementation_internal"])
def test_a_kernel_that_a_configuration_names_is_not_taken(spoilt, key, named):
    """A kernel of the hub is code: which one computes attention is never the file's choice."""
    model = load(spoilt(config={key: named}))
    assert model.module.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("part", ["AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"])
def test_no_code_of_a_folder_runs_whichever_part_asks_for_it(spoilt, tmp_path, monkeypatch, part):
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    trace = tmp_path / "it-ran"
    named = ["own.Own", "own.Own"] if part == "AutoTokenizer" else "own.Own"
    folder = spoilt(config={"auto_map": {part: named}})
    for name in ("own.py", "modeling_llama.py", "tokenization_llama.py", "__init__.py", "setup.py", "conftest.py"):
        (folder / name).write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\nclass Own: pass\n")
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"auto_map": {part: named}, "tokenizer_class": "Own"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    try:
        load(folder)
    except InterpError as error:
        assert "trust" in str(error) or "tokenizer" in str(error)
    assert not trace.exists() and not (tmp_path / "modules").exists()


def test_a_name_with_a_path_in_a_tokenizer_file_is_not_followed(spoilt, tmp_path):
    folder = spoilt()
    outside = tmp_path / "outside.json"
    shutil.move(folder / "tokenizer.json", outside)
    content = json.loads((folder / "tokenizer_config.json").read_text())
    content |= {"tokenizer_file": "../outside.json", "vocab_file": "../outside.json", "name_or_path": "../"}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    assert "there is none beside the weights" in refusal(folder)


def test_constant_weights_give_numbers_or_reasons_and_no_warning():
    """A model of zeros: every entropy is log2 of the vocabulary, nothing depends on anything."""
    model = fresh_model("llama")
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.zero_()
    prompts = PromptSet("ids", [Prompt(token_ids=(i, i + 1, i + 2)) for i in range(1, 13)])
    capture = interp.collect(model, prompts, ["pattern_entropy", "v"])
    assert np.allclose(capture.rows["next_entropy_bits"], math.log2(VOCAB))
    assert not capture[Need("v")].any()
