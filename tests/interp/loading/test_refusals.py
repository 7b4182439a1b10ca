"""Every way in which a model cannot be had, read or trusted: what is said, and that it is said before the weights."""

import json
import re
from pathlib import Path

import psutil
import pytest
import torch

from interp.errors import ModelError, UsageError
from interp.loading.load import load
from interp.loading.placement import DTYPES, available_bytes, choose_placement, precision_hazard
from interp.options import RunOptions
from tests.hub_cache import lay_out
from tests.hub_server import BAD_TOKEN, BUSY, GATED, NO_REVISION, NOT_FOUND, serving
from tests.tiny_models import fresh_model, tiny_config, tiny_model

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


# --- names and access -------------------------------------------------------------------------------------------------


def test_unknown_alias_names_the_nearest():
    assert refusal("pythia-410", UsageError).startswith(
        "model 'pythia-410': there is no model of this name\n  Did you mean pythia-410m or pythia-160m or pythia-1b? "
    )


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


# --- what can be read -------------------------------------------------------------------------------------------------


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
        ({"rope_parameters": {"rope_type": "unheard of"}}, "config"),
        ({"pad_token_id": 1000}, "config"),
        ({"model_type": "unheard_of"}, "its model_type is 'unheard_of'"),
    ],
)  # fmt: skip
def test_anything_but_a_causal_language_model_of_possible_values_is_refused_in_words(tmp_path, changes, words):
    assert re.search(words, refusal(configured(tmp_path, **changes)))


@pytest.fixture
def with_code(folder, tmp_path, monkeypatch):
    """A folder that brings code of its own, and the file that this code leaves behind when it runs."""
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    trace = tmp_path / "it-ran"
    (folder / "own.py").write_text(
        f"from pathlib import Path\nPath({str(trace)!r}).touch()\n"
        "from transformers import PreTrainedConfig\n"
        "class OwnConfig(PreTrainedConfig):\n    model_type = 'own'\n"
    )
    content = json.loads((folder / "config.json").read_text())
    content |= {"auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(content))
    return folder, trace


def test_code_of_a_repository_is_not_run_unless_trusted(with_code):
    folder, trace = with_code
    assert load(folder, check=False).info.family == "llama"  # transformers knows the family itself
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"model_type": "own"}))
    message = refusal(folder)
    assert "it needs its own Python code" in message
    assert "trust_remote_code=True" in message
    assert not trace.exists()
    assert "the family 'own'" in refusal(folder, trust_remote_code=True)
    assert trace.exists()


# --- weights ----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": []}}'])
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


# --- tokenizers -------------------------------------------------------------------------------------------------------


def test_missing_tokenizer_can_be_handed_over(folder, word_tokenizer, tiny_folders):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    assert refusal(folder) == (
        f"the tokenizer of {folder}: there is none beside the weights\n"
        "  Pass tokenizer= (an object, a folder or a hub id), or copy tokenizer.json beside config.json."
    )
    assert load(folder, tokenizer=word_tokenizer, check=False).tokenizer is word_tokenizer
    assert load(folder, tokenizer=str(tiny_folders["phi"]), check=False).tokenizer("w7")["input_ids"] == [7]


@pytest.mark.parametrize("text", ["{", "{}", '{"version": "1.0", "model": {"type": "unheard of"}}'])
def test_broken_tokenizer_is_refused(folder, text):
    (folder / "tokenizer.json").write_text(text)
    assert f"the tokenizer of {folder}: it cannot be read" in refusal(folder)


def test_tokenizer_with_more_tokens_than_embeddings_is_refused(folder):
    fresh_model("llama", vocab_size=50).module.save_pretrained(folder)
    assert "it has 101 tokens, and the model embeds 50" in refusal(folder)


# --- memory and precision ---------------------------------------------------------------------------------------------


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
    from interp.loading import placement

    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 1\nactive_file 5\ninactive_file 200000\n")
    monkeypatch.setattr(placement, "CONTAINER", tmp_path)
    assert available_bytes(torch.device("cpu")) == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(torch.device("cpu")) > 1_000_000


@pytest.mark.parametrize("device", ["toaster", "cuda:99", "meta", "cpu:x"])
def test_device_that_is_not_there_is_refused(tiny_folders, device):
    assert "Use cpu, cuda, cuda:1 ... or mps." in refusal(tiny_folders["phi"], UsageError, device=device)


def test_hazards_of_short_precisions_are_told_and_refused(tiny_folders):
    told = {dtype for dtype in DTYPES if precision_hazard(dtype)}
    assert told == {"bfloat16", "float16"}
    assert "65504" in str(precision_hazard("float16"))
    assert refusal(tiny_folders["phi"], dtype="float16") == (
        "a Phi model in float16: its attention overflows there: products of queries and keys exceed 65504, the "
        "largest float16, and become infinite\n  Use float32, or bfloat16 where memory is short."
    )
    assert "Did you mean float16 or bfloat16 or float64?" in refusal(tiny_folders["phi"], UsageError, dtype="float1")
    message = refusal(tiny_folders["phi"], UsageError, device="cpu", device_map="auto")
    assert "both say where to put the model" in message
