"""Loading: what a name stands for, what a loaded model says of itself, and that a model is read, not changed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from interp.errors import ModelError, UsageError
from interp.loading.load import load
from interp.loading.quiet_libraries import quiet_libraries
from tests.hub_cache import MODELS, TOKENIZERS, build_hub_cache, lay_out
from tests.hub_server import serving
from tests.interp.test_families import tiny
from tests.paths import ROOT
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_model

IDS = torch.tensor([[3, 14, 15, 92, 65, 35, 89, 79]])


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to, dirs_exist_ok=True))


def test_a_trained_model_goes_on_as_was_published_of_it(stories):
    model = load(stories)
    assert (model.info.n_heads, model.info.n_kv_heads, model.info.d_head) == (8, 4, 8)
    assert model.info.n_parameters == 260_032  # a tied embedding, counted once
    ids = model.tokenizer("Once upon a time", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        top = model.module(ids).logits[0, -1].softmax(-1).topk(2)
    assert [model.tokenizer.decode([int(i)]).strip() for i in top.indices] == [",", "there"]
    assert torch.allclose(top.values, torch.tensor([0.969, 0.029]), atol=5e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_loaded_folder_is_the_saved_model_bit_for_bit_and_states_its_sizes(tiny_folders, family):
    saved = tiny_model(family).module
    model = load(tiny_folders[family])
    with torch.no_grad():
        assert torch.equal(model.module(IDS).logits, saved(IDS).logits)
    assert not model.module.training
    assert not any(p.requires_grad for p in model.module.parameters())
    assert model.module.config._attn_implementation == "sdpa"
    assert model.tokenizer("w3 w14")["input_ids"] == [3, 14]
    info = model.info
    is_grouped, is_partial = family in ("llama", "mistral"), family in ("gpt_neox", "phi")
    assert (info.family, info.n_layers, info.n_heads, info.d_model, info.d_head) == (family, 3, 4, 48, 12)
    assert info.n_kv_heads == (2 if is_grouped else 4)
    assert info.n_rotary == (6 if is_partial else 12)
    assert info.window == (5 if family == "mistral" else None)
    assert info.parallel_blocks == is_partial
    assert (info.vocab_size, info.dtype, info.device, info.attention_kernel) == (VOCAB, "float32", "cpu", "sdpa")
    assert info.n_parameters == sum(p.numel() for p in tiny_model(family).module.parameters())
    assert info.revision is None
    assert info.source == str(tiny_folders[family])


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("mistral", {}, 5),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"max_position_embeddings": 5}, None),
        ("mistral", {"sliding_window": 4}, 4),
        ("llama", {"sliding_window": 3}, None),  # which never looks at it
    ],
)
def test_a_window_is_stated_only_where_it_ever_cuts(family, changes, window):
    assert load(fresh_model(family, **changes).module, check=False).info.window == window


def test_shards_are_read_together(tiny_folders, tmp_path):
    folder = copy_of(tiny_folders["phi"], tmp_path / "m")
    (folder / "model.safetensors").unlink()
    tiny_model("phi").module.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    model = load(folder, check=False)
    assert {check.name for check in model.checks} == {"weights"}
    with torch.no_grad():
        assert torch.equal(model.module(IDS).logits, tiny_model("phi").module(IDS).logits)


def test_experts_are_read_in_float64(tmp_path, word_tokenizer):
    saved = tiny("qwen3_moe").module
    saved.save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    model = load(tmp_path, dtype="float64")
    with torch.no_grad():
        torch.testing.assert_close(model.module(IDS).logits.float(), saved(IDS).logits, rtol=1e-4, atol=1e-5)


def test_precision_and_device_map_are_those_asked_for(tmp_path, tiny_folders):
    for dtype in (torch.bfloat16, torch.float64):
        model = load(tiny_folders["llama"], dtype=dtype)
        assert model.info.dtype == str(dtype).removeprefix("torch.")
        assert {p.dtype for p in model.module.parameters()} == {dtype}
    folder = copy_of(tiny_folders["llama"], tmp_path / "m")
    fresh_model("llama").module.to(torch.bfloat16).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert load(folder, device="cpu").info.dtype == "float32"
    model = load(tiny_folders["llama"], device_map="auto")
    with torch.no_grad():
        logits = model.module(IDS.to(model.module.device)).logits.cpu()
    assert torch.allclose(logits, tiny_model("llama").module(IDS).logits, atol=1e-5)


def small_cache(out: Path, folder: Path, hub_id: str, ref: str = "main") -> Path:
    return lay_out(copy_of(folder, out.parent / f"files-{ref}"), hub_id, out, ref)


@pytest.mark.slow
def test_the_environment_of_the_hub_library_is_what_counts(tmp_path, tiny_folders):
    small_cache(tmp_path / "hub", tiny_folders["gpt_neox"], "EleutherAI/pythia-70m")
    code = "import interp; m = interp.load('pythia-70m'); print(m.info.source, m.info.n_layers)"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.stdout.split() == ["EleutherAI/pythia-70m", "3"]
    assert done.stderr == ""


@pytest.mark.parametrize("how", ["name", "argument", "both", "commit"])
def test_a_revision_stands_behind_the_name_or_beside_it(tmp_path, tiny_folders, use_cache, how):
    small_cache(tmp_path / "hub", tiny_folders["gpt_neox"], "EleutherAI/pythia-70m")
    other = small_cache(tmp_path / "hub", tiny_folders["llama"], "EleutherAI/pythia-70m", ref="step7")
    use_cache(tmp_path / "hub")
    revision = other.name if how == "commit" else "step7"
    name = "pythia-70m@step7" if how in ("name", "both") else "pythia-70m"
    info = load(name, revision=None if how == "name" else revision, check=False).info
    assert (info.name, info.revision, info.family) == (f"pythia-70m@{revision}", other.name, "llama")
    assert load(info.name, check=False).info == info
    assert load("pythia-70m", check=False).info.family == "gpt_neox"


def test_a_model_is_fetched_from_the_hub_once_and_then_served_by_the_cache(tiny_folders, use_hub, capfd):
    with serving({"owner/name": tiny_folders["phi"]}) as hub:
        use_hub(hub.url)
        first = load("owner/name", check=False)
        n_bodies = sum(line.startswith("GET /owner") for line in hub.asked)
        hub.asked.clear()
        again = load("owner/name", check=False)
        assert not any(line.startswith("GET /owner") for line in hub.asked)
    unreachable = load("owner/name", check=False)
    assert capfd.readouterr().err == ""  # no bars of downloads where there is no terminal
    files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    assert n_bodies == len(files)
    assert first.info == again.info == unreachable.info
    assert first.info.revision == "c0ffee" + "0" * 34
    with torch.no_grad():
        assert torch.equal(first.module(IDS).logits, tiny_model("phi").module(IDS).logits)


def test_tunnels_have_names_steps_tasks_and_cards_by_name_or_folder_and_no_tokenizer():
    folder = ROOT / "wind_tunnels" / "checkpoints" / "bijection-gpt-neox"
    card = json.loads((folder / "tunnel.json").read_text())
    for name in ("tunnel:bijection-gpt-neox", str(folder)):
        last = load(name)
        assert (last.info.name, last.info.source, last.tokenizer, last.task.name) == (name, name, None, "bijection")
        assert last.card["step"] == card["step"]
        assert last.card["figures"]["kl_bits"]["value"] == card["figures"]["kl_bits"]["value"]
    model = load("tunnel:bijection-gpt-neox@16", check=False)
    assert model.info.name == "tunnel:bijection-gpt-neox@16" and model.fingerprint != last.fingerprint
    assert model.task is not None
    with pytest.raises(UsageError, match=r"has the steps \['0', '16', '64', '128', '256', '512'\]"):
        load("tunnel:bijection-gpt-neox@11")
    with pytest.raises(UsageError, match="Did you mean bijection-gpt-neox"):
        load("tunnel:bijection-gptneox")
    with pytest.raises(UsageError, match="Did you mean tunnel:bijection-gpt-neox"):
        load("bijection-gpt-neox")


def test_a_model_in_memory_is_left_as_it_is(word_tokenizer):
    module = fresh_model("llama").module
    module.config._attn_implementation = "eager"
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    model = load(module, tokenizer=word_tokenizer)
    assert model.module is module
    assert model.tokenizer is word_tokenizer
    assert module.config._attn_implementation == "eager"
    assert module.config.architectures == fresh_model("llama").module.config.architectures
    assert all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(before[name], p) for name, p in module.named_parameters())
    assert (model.info.name, model.info.source) == ("memory:LlamaForCausalLM", "memory")


def test_a_model_in_memory_finds_the_tokenizer_it_was_loaded_with(tiny_folders, tmp_path, use_cache):
    from_folder = AutoModelForCausalLM.from_pretrained(tiny_folders["phi"])
    assert load(from_folder, check=False).tokenizer("w5")["input_ids"] == [5]
    small_cache(tmp_path / "hub", tiny_folders["phi"], "owner/name")
    use_cache(tmp_path / "hub")
    from_hub = AutoModelForCausalLM.from_pretrained("owner/name")
    assert load(from_hub, check=False).tokenizer("w5")["input_ids"] == [5]
    assert load(fresh_model("phi").module, check=False).tokenizer is None


@pytest.mark.parametrize(
    ("given", "how", "error", "words"),
    [
        (lambda: fresh_model("phi").module.train(), {}, UsageError, "training mode"),
        (lambda: fresh_model("llama").module.model, {}, ModelError, "it is a LlamaModel, which does not predict"),
        (lambda: fresh_model("phi").module.to(torch.float16), {}, ModelError, "attention overflows"),
        (lambda: "memory:LlamaForCausalLM", {}, UsageError, "it was a model in memory"),
        (lambda: fresh_model("phi").module, {"dtype": "bfloat16"}, UsageError, "in memory with dtype"),
        (lambda: fresh_model("phi").module, {"device": "cpu"}, UsageError, "in memory with device"),
        (lambda: fresh_model("phi").module, {"revision": "main"}, UsageError, "in memory with revision"),
        (lambda: "pythia-70m@step7", {"revision": "step8"}, UsageError, "two revisions are given"),
        (lambda: ".", {"revision": "main"}, UsageError, "only models of the hub have revisions"),
    ],
)
def test_what_cannot_be_measured_or_is_asked_for_otherwise_is_refused(given, how, error, words):
    with pytest.raises(error, match=words):
        load(given(), **how)


def test_loading_says_nothing_and_leaves_the_library_as_talkative_as_before(tmp_path, tiny_folders, capfd):
    from safetensors.torch import load_file, save_file
    from transformers.utils import logging

    folder = copy_of(tiny_folders["llama"], tmp_path / "m")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "model.spare.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    usual = logging.get_verbosity()
    logging.set_verbosity_info()
    logging.enable_progress_bar()  # a command that ran in this process before may have switched it off
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    model = load(folder)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    after = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    logging.set_verbosity(usual)
    assert after == before
    assert "1 tensors (model.spare.weight), for which the model has no place" in model.checks[0].detail
    AutoModelForCausalLM.from_pretrained(folder)
    assert "Loading weights" in capfd.readouterr().err  # what would have been said


REAL = [
    ("pythia-410m", 2, {"n_heads": 16, "d_head": 64, "n_rotary": 16, "window": None, "max_positions": 2048}),
    ("pythia-410m", 24, {"n_heads": 16, "n_kv_heads": 16, "vocab_size": 50304, "dtype": "float32"}),
    ("phi-2", 2, {"n_heads": 32, "n_kv_heads": 32, "d_head": 80, "n_rotary": 32, "window": None}),
    ("mistral-7b", 1, {"n_heads": 32, "n_kv_heads": 8, "d_head": 128, "n_rotary": 128, "window": 4096}),
]


@pytest.mark.parametrize(("alias", "n_layers", "facts"), quick(REAL[:1], REAL))
def test_real_configurations_load_from_the_cache_by_their_alias_and_pass_the_self_check(
    use_cache, alias, n_layers, facts
):
    if not TOKENIZERS.exists():
        pytest.skip("the real tokenizers are not on this machine")
    with tempfile.TemporaryDirectory() as cache, quiet_libraries():
        snapshot = build_hub_cache(alias, Path(cache), n_layers)
        use_cache(Path(cache))
        model = load(alias)
    assert replace(model.info, **facts) == model.info
    assert (model.info.n_layers, model.info.name, model.info.source) == (n_layers, alias, MODELS[alias][0])
    assert model.info.revision == snapshot.name and all(c.passed for c in model.checks)
    ids = model.tokenizer("Hello there")["input_ids"]
    assert model.tokenizer.decode(ids, skip_special_tokens=True) == "Hello there"
