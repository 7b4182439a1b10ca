"""Models that cannot be had, read or trusted, are damaged or lie: what is said, before anything runs."""

import io
import json
import math
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import dynamic_module_utils
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import InterpError, ModelError, UsageError
from interp.hooks.layer_gradients import in_float64
from interp.loading.adapter import locate_adapter
from interp.loading.load import load
from interp.loading.placement import DTYPES, choose_placement, hazards
from interp.need import Need
from interp.options import RunOptions
from interp.prompt import Prompt, PromptSet
from interp.system import memory
from interp.system.memory import available_bytes
from tests.hub_cache import lay_out
from tests.hub_server import BAD_TOKEN, BUSY, GATED, NO_REVISION, NOT_FOUND, serving
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_config, tiny_model

IDS = torch.tensor([[3, 14, 15, 92, 65]])


def configured(folder: Path, **changes) -> Path:
    """A folder that holds nothing but a configuration: what is refused here is refused before weights are read."""
    folder.mkdir(exist_ok=True)
    content = {"architectures": ["LlamaForCausalLM"], **tiny_config("llama").to_dict(), **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if v != "absent"}))
    return folder


def refusal(name, error=ModelError, **keywords) -> str:
    with pytest.raises(error) as caught:
        load(name, **keywords)
    return str(caught.value)


def test_gated_repositories_and_those_without_a_configuration_are_refused(use_hub, tmp_path):
    with serving({"meta-llama/Llama-3.2-1B": GATED}) as hub:
        use_hub(hub.url)
        assert refusal("llama-3.2-1b") == (
            "the model meta-llama/Llama-3.2-1B: it is gated, and the hub does not let you read it\n"
            "  Accept its conditions at https://huggingface.co/meta-llama/Llama-3.2-1B, then log in: "
            "`hf auth login` (or HF_TOKEN)."
        )
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "README.md").write_text("nothing")
    with serving({"owner/name": tmp_path / "files"}) as hub:
        use_hub(hub.url)
        assert "the repository has no config.json" in refusal("owner/name")
        assert "the repository has no some.gguf" in refusal("owner/name", gguf="some.gguf")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (NOT_FOUND, ("no public repository of this name", "`interp list models`", "hf auth login")),
        (NO_REVISION, ("owner/name@step7: the repository has no such revision", "step143000")),
        (BAD_TOKEN, ("the error 401", "hf auth login")),
        (BUSY, ("the error 429", "Try again in some minutes")),
    ],
    ids=["not found", "no revision", "bad token", "busy"],
)
def test_each_answer_of_the_hub_has_its_message(use_hub, answer, words):
    with serving({"owner/name": answer}) as hub:
        use_hub(hub.url)
        message = refusal("owner/name@step7")
    assert all(word in message for word in words), message


def test_no_network_or_offline_and_not_cached_says_both(use_hub, use_cache, tmp_path):
    with serving({}) as hub:
        url = hub.url
    cache = use_hub(url)
    message = refusal("pythia-70m")
    assert "the hub cannot be reached (ConnectError" in message
    assert f"it is not in the cache {cache}" in message
    assert "Load it once with a network" in message
    use_cache(tmp_path)
    assert refusal("pythia-70m") == (
        f"the model EleutherAI/pythia-70m: HF_HUB_OFFLINE is set, and it is not in the cache {tmp_path}\n"
        "  Load it once with a network, or copy the cache from a machine that has it and set HF_HUB_CACHE."
    )


def test_missing_folder_and_file_and_folder_without_configuration_are_told_apart(tmp_path):
    assert "there is no such folder" in refusal(tmp_path / "nowhere")
    assert "there is no such folder" in refusal("./nowhere")
    (tmp_path / "weights.bin").write_text("x")
    assert "it is a file" in refusal(tmp_path / "weights.bin")
    assert "there is no config.json in it (weights.bin)" in refusal(tmp_path)
    (tmp_path / "small.gguf").write_text("x")
    assert refusal(tmp_path).endswith(f"or name a GGUF file, such as {tmp_path / 'small.gguf'}.")
    with pytest.raises(ModelError, match=r"Give the folder with adapter_config\.json in it\.$"):
        locate_adapter(str(tmp_path))


NO_CAUSAL = ".*, which does not predict every token from those before it"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "it is a BertForMaskedLM" + NO_CAUSAL),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
         "it is an encoder-decoder" + NO_CAUSAL),
        ({"architectures": ["LlamaForSequenceClassification"]}, "it is a LlamaForSequenceClassification" + NO_CAUSAL),
        ({"architectures": ["LlamaModel"]}, "it is a LlamaModel" + NO_CAUSAL),
        ({"model_type": "vit", "architectures": None}, "its family 'vit' has no language model head" + NO_CAUSAL),
        ({"model_type": "bitnet", "architectures": ["BitNetForCausalLM"]}, r"the family BitNet \(bitnet\)"),
        ({"num_attention_heads": "many"}, "config"),
        ({"num_attention_heads": 0}, "config"),
        ({"num_hidden_layers": -1}, "config"),
        ({"num_hidden_layers": 10**12}, "config"),
        ({"architectures": [1]}, "config"),
        ({"model_type": ["llama"]}, "config"),
        ({"hidden_size": -1}, "config"),
        ({"hidden_act": 7}, "config"),
        ({"rope_parameters": {"rope_type": "no_report of"}}, "config"),
        ({"pad_token_id": 1000}, "config"),
        ({"model_type": "unheard_of"}, "its model_type is 'unheard_of'"),
    ],
)  # fmt: skip
def test_anything_but_a_causal_language_model_of_possible_values_is_refused_in_words(tmp_path, changes, words):
    assert re.search(words, refusal(configured(tmp_path, **changes)))


def test_code_of_a_repository_is_not_run_unless_trusted(spoilt, tmp_path, monkeypatch):
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    named = {"auto_map": {"AutoConfig": "own.OwnConfig"}}
    folder, trace = spoilt(config=named | {"model_type": "own"}), tmp_path / "it-ran"
    (folder / "own.py").write_text(
        f"from pathlib import Path\nPath({str(trace)!r}).touch()\nfrom transformers import PreTrainedConfig\n"
        "class OwnConfig(PreTrainedConfig):\n    model_type = 'own'\n"
    )
    message = refusal(folder)
    assert "it needs its own Python code" in message and "trust_remote_code=True" in message and not trace.exists()
    assert "the family 'own'" in refusal(folder, trust_remote_code=True) and trace.exists()
    assert load(spoilt("phi", config=named), check=False).info.family == "phi"  # transformers knows it itself


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [*((lambda whole, n=n: whole[:n], "model.safetensors is truncated or corrupt") for n in (0, 5, 100, 20_000)),
     (lambda whole: whole.replace(b'"dtype"', b'"dtyqe"', 1), "truncated or corrupt"),
     (lambda whole: LFS, "git-lfs pointer without its content")],
)  # fmt: skip
def test_damaged_weights_are_refused(folder, spoil, words):
    path = folder / "model.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    message = refusal(folder)
    assert words in message and ("Copy the folder again" in message or spoil(b"") == LFS)


def test_a_cache_of_damaged_or_missing_weights_is_refused_with_what_to_delete(tmp_path, folder, use_cache):
    weights = lay_out(folder, "owner/name", tmp_path / "hub") / "model.safetensors"
    use_cache(tmp_path / "hub")
    weights.resolve().write_bytes(weights.read_bytes()[:-100])
    assert f"Delete {tmp_path / 'hub' / 'models--owner--name'} and load again" in refusal("owner/name")
    weights.unlink()
    assert "there is no model.safetensors" in refusal("owner/name")


def test_missing_files_of_weights_and_those_out_of_the_folder_are_named(sharded):
    path = sharded / "model.safetensors.index.json"
    content = json.loads(path.read_text())
    shard = next(iter(content["weight_map"].values()))
    others = {key: tensor for file in sharded.glob("*-of-*") for key, tensor in load_file(file).items()}
    kept = (sharded / shard).read_bytes()
    save_file(others, sharded / shard, {"format": "pt"})
    assert re.search(rf"{shard} and .* both hold|and {shard} both hold", refusal(sharded))
    (sharded / shard).write_bytes(kept)
    (sharded / shard).rename(sharded.parent / "outside.safetensors")
    assert f"model.safetensors.index.json names {shard}, which is not there" in refusal(sharded)
    moved = {key: file.replace(shard, "../outside.safetensors") for key, file in content["weight_map"].items()}
    path.write_text(json.dumps(content | {"weight_map": moved}))
    assert "names ../outside.safetensors, which is not there" in refusal(sharded)
    path.unlink()
    assert "there is no model.safetensors" in refusal(sharded)


@pytest.fixture
def sharded(folder):
    (folder / "model.safetensors").unlink()
    tiny_model("llama").module.save_pretrained(folder, max_shard_size="100KB")
    return folder


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": []}}',
                                  '{"weight_map": {"a": "config.json"}}'])  # fmt: skip
def test_broken_index_is_refused(sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in refusal(sharded)


@pytest.mark.parametrize("n_files", [1, 2])
def test_pickled_weights_are_read_only_when_insisted_on_and_shards_are_those_of_their_index(folder, n_files):
    (folder / "model.safetensors").unlink()
    weights = tiny_model("llama").module.state_dict()
    names = ["pytorch_model.bin"] if n_files == 1 else ["pytorch_model-1.bin", "pytorch_model-2.bin"]
    for i, name in enumerate(names):
        torch.save({key: weights[key] for key in [*weights][i::n_files]}, folder / name)
    if n_files > 1:
        index = {"metadata": {}, "weight_map": {key: names[i % n_files] for i, key in enumerate(weights)}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    message = refusal(folder)
    assert "they are pickled (pytorch_model" in message and "allow_pickle=True" in message
    with torch.no_grad():
        assert torch.equal(load(folder, allow_pickle=True).module(IDS).logits, tiny_model("llama").module(IDS).logits)


def test_missing_tokenizer_can_be_handed_over(folder, word_tokenizer, tiny_folders):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert refusal(folder) == (
        f"the tokenizer of {folder}: there is none beside the weights\n"
        "  Pass tokenizer= (an object, a folder or a hub id), or copy tokenizer.json beside config.json."
    )
    shown = CliRunner().invoke(app, ["check", "--model", str(folder)])
    assert shown.exit_code == 0 and "self-check of" in shown.output, "the self-check reads ids of its own"
    assert load(folder, tokenizer=word_tokenizer, check=False).tokenizer is word_tokenizer
    assert load(folder, tokenizer=str(tiny_folders["phi"]), check=False).tokenizer("w7")["input_ids"] == [7]


@pytest.mark.parametrize("text", ["{", "{}", '{"version": "1.0", "model": {"type": "no_report of"}}'])
def test_broken_tokenizer_is_refused(folder, text):
    (folder / "tokenizer.json").write_text(text)
    assert f"the tokenizer of {folder}: it cannot be read" in refusal(folder)


def test_tokenizer_with_more_tokens_than_embeddings_is_refused(folder):
    fresh_model("llama", vocab_size=50).module.save_pretrained(folder)
    assert "it has 101 tokens, and the model embeds 50" in refusal(folder)


def test_memory_that_is_free_decides_what_fits(tmp_path):
    sizes = {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "vocab_size": 128256,
             "num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 128}  # fmt: skip
    message = refusal(configured(tmp_path, **sizes), device="cpu")
    assert "a llama model of 405,853,388,800 parameters in float32: its weights take 1623.4 GB, and " in message
    assert " GB are free (cpu)" in message
    n_parameters = int(available_bytes(torch.device("cpu")) / 3)
    with pytest.raises(ModelError, match=r"Load it with dtype='bfloat16'\."):
        choose_placement(tiny_config("llama"), n_parameters, RunOptions(device="cpu"))
    assert (
        choose_placement(tiny_config("llama"), n_parameters, RunOptions(device="cpu", dtype="bfloat16")).dtype
        == "bfloat16"
    )
    free = psutil.virtual_memory().available
    assert 0 < available_bytes(torch.device("cpu")) <= 1.05 * free


def test_memory_limit_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 1\nactive_file 5\ninactive_file 200000\n")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert available_bytes(torch.device("cpu")) == 500_000
    with pytest.raises(ModelError, match=r"in float64: it needs .* are free"):
        in_float64(tiny_model("llama"))
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(torch.device("cpu")) > 1_000_000


@pytest.mark.parametrize("device", ["toaster", "cuda:99", "meta", "cpu:x"])
def test_device_that_is_not_there_is_refused(tiny_folders, device):
    assert "Use cpu" in refusal(tiny_folders["phi"], UsageError, device=device)


def test_hazards_of_short_precisions_are_told_and_refused(tiny_folders):
    told = {dtype for dtype in DTYPES if hazards(dtype)}
    assert told == {"bfloat16", "float16"}
    assert "65504" in str(hazards("float16"))
    assert refusal(tiny_folders["phi"], dtype="float16") == (
        "a Phi model in float16: its attention overflows there: products of queries and keys exceed 65504, the "
        "largest float16, and become infinite\n  Use float32, or bfloat16 where memory is short."
    )
    assert "Did you mean float16?" in refusal(tiny_folders["phi"], UsageError, dtype="float1")
    message = refusal(tiny_folders["phi"], UsageError, device="cpu", device_map="auto")
    assert "both say where to put the model" in message
    message = refusal(tiny_folders["phi"], UsageError, device_map="spread")
    assert "no such way to spread a model" in message and "auto, balanced," in message
    message = refusal(tiny_folders["phi"], UsageError, device_map={"model": "disk", "lm_head": "gpu"})
    assert message.startswith("the device 'gpu': there is no such kind of device")


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
        ("model.layers.1.self_attn.v_proj.weight", torch.ones(2).to(torch.float8_e4m3fn), "is stored as F8_E4M3, one"),
    ],
)
def test_tensors_of_blocks_without_a_place_or_that_are_missing_are_refused(spoilt, name, value, said):
    """They are of more layers, or of layers that do more: without them it is another model."""

    def change(tensors):
        tensors.pop(name) if value is None else tensors.update({name: value})

    with pytest.raises(ModelError, match=said):
        load(spoilt(tensors=change))


def test_tensors_named_as_a_wrapper_names_them_are_shown(spoilt):
    def change(tensors):
        for name in list(tensors):
            tensors[f"_orig_mod.{name}"] = tensors.pop(name)

    with pytest.raises(ModelError, match=r"lack 30 tensors.*hold 30 tensors \(_orig_mod\.lm.*\n.*inside a wrapper"):
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
        ("gpt_neox", {"hidden_dropout": 3.0}, "no model can be built from it"),
        ("llama", {"sliding_window": "all"}, "sliding_window.int: input should be a valid integer"),
        ("llama", {"quantization_config": 7}, "quantization_config: input should be a valid dictionary"),
        ("llama", {"num_labels": 10**9}, "num_labels: input should be less than or equal to 1000000"),
        ("llama", {"num_key_value_heads": 0}, "no model can be built from it"),
        ("llama", {"num_attention_heads": 6}, "tensors have another shape than config.json says"),
        ("llama", {"num_key_value_heads": 4}, "k_proj"),
        ("llama", {"hidden_size": 64, "head_dim": 12}, "48"),
        ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "its weights are quantised"),
        ("llama", {"num_hidden_layers": 1}, "no place in the blocks for 18 tensors"),
        ("mistral", {"sliding_window": -1}, "the self-check 'eager' failed"),
        ("mistral", {"sliding_window": 0}, "the self-check 'eager' failed"),
        ("llama", {"hidden_act": "<script>"}, "no model can be built from it"),
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
    assert "it cannot read a few tokens: RuntimeError: dropout probability has to be between 0 and 1" in refusal(module)


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
