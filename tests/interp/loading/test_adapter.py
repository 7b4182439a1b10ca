"""Adapters: merged weights are W + scale · B A by hand, and what is damaged or of another base is rejected."""

import copy
import json
import shutil

import pytest
import torch
from interp.probes.dynamics.probe import Dynamics
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import ModelError, UsageError
from interp.loading.hub_files import ModelFiles
from interp.loading.quiet_libraries import quiet_libraries
from interp.probe import Chosen
from interp.records.unfinished import Unfinished
from interp.running.run import _Clock, _Session
from interp.running.spec import RunSpec
from tests.quick import quick

peft = pytest.importorskip("peft", reason="the extra peft is not installed")

R, ALPHA = 3, 7
QUICK = {"manifold": {"n_permutations": 20, "n_null": 20, "n_bootstrap": 20, "n_splits": 2}}


def adapter_of(module, folder, target_modules, **changes):
    """An adapter of which every tensor is random, saved as PEFT saves it."""
    torch.manual_seed(1)
    how = {"r": R, "lora_alpha": ALPHA, "task_type": "CAUSAL_LM", "init_lora_weights": False, **changes}
    with quiet_libraries():
        trained = peft.get_peft_model(module, peft.LoraConfig(target_modules=target_modules, **how))
        with torch.no_grad():
            for parameter in (p for p in trained.parameters() if p.requires_grad):
                parameter.add_(torch.randn_like(parameter) * 0.2)
        trained.save_pretrained(folder)
    return folder


@pytest.fixture
def llama(tiny_folders):
    return tiny_folders["llama"]


@pytest.fixture
def lora(llama, tmp_path):
    module = AutoModelForCausalLM.from_pretrained(llama)
    return adapter_of(module, tmp_path / "lora", ["q_proj", "v_proj", "down_proj"])


def by_hand(before, folder, scale, *, is_transposed=False):
    """The weights W + scale · B A of every module that the adapter's file names."""
    found, tensors = dict(before), load_file(folder / "adapter_model.safetensors")
    for key, a in tensors.items():
        if key.endswith("lora_A.weight"):
            change = scale * tensors[key.replace("lora_A", "lora_B")].double() @ a.double()
            name = key.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            found[name] = before[name].double() + (change.T if is_transposed else change)
    return found


def edited_config(folder, **changes):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edited_tensors(folder, change):
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors, min(tensors))
    save_file(tensors, folder / "adapter_model.safetensors")


def _cut(folder):
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    "damage, words",
    [
        (shutil.rmtree, "there is no such folder"),
        (lambda f: (f / "adapter_config.json").unlink(), "there is no adapter_config.json"),
        (lambda f: (f / "adapter_model.safetensors").rename(f / "adapter_model.bin"), "no adapter_model.safetensors"),
        (lambda f: (f / "adapter_config.json").write_text("{"), "adapter_config.json cannot be read"),
        (lambda f: edited_config(f, peft_type="PROMPT_TUNING"), "its kind is PROMPT_TUNING"),
        (lambda f: edited_config(f, r=R + 1), r"it does not fit \(.*size mismatch"),
        (lambda f: edited_config(f, target_modules=["query"]), r"it does not fit \(Target modules"),
        (lambda f: edited_config(f, target_modules=["q_proj"]), "the model has no place for"),
        (_cut, "truncated or corrupt"),
        (lambda f: edited_config(f, megatron_config={"a": 1}, megatron_core="antigravity"), "names a module to import"),
        (lambda f: edited_config(f, trainable_token_indices="last"), r"it does not fit \(too many indices"),
        (lambda f: edited_tensors(f, lambda t, key: t.pop(key)), "its file lacks"),
        (lambda f: edited_tensors(f, lambda t, key: t[key].fill_(float("nan"))), "values that are not finite"),
        (lambda f: edited_tensors(f, lambda t, key: t.update({key: t[key].to(torch.int8)})), "rounded to torch.int8"),
        (lambda f: edited_tensors(f, lambda t, key: [x.zero_() for x in t.values()]), "it changes no weight"),
    ],
)  # fmt: skip
def test_a_damaged_adapter_is_refused_in_words(llama, lora, damage, words):
    damage(lora)
    with pytest.raises(ModelError, match=words):
        interp.load(llama, adapter=lora)


def test_an_adapter_names_its_base_and_is_refused_on_another(llama, lora, tiny_folders, tmp_path):
    with pytest.raises(ModelError, match="does not fit"):
        interp.load(tiny_folders["gpt_neox"], adapter=lora)
    with pytest.raises(ModelError, match="this one as --adapter"):
        interp.load(lora)
    with pytest.raises(UsageError, match="in memory with adapter"):
        interp.load(AutoModelForCausalLM.from_pretrained(llama), adapter=lora)
    from interp.loading.adapter import _refuse_unfit

    def of(base: str | None) -> ModelFiles:
        told = {"peft_type": "LORA", "base_model_name_or_path": base}
        (tmp_path / "adapter_config.json").write_text(json.dumps(told))
        return ModelFiles(tmp_path, frozenset())

    for base, named in (("org/model", "org/model"), ("/a/folder/of/it", "org/model"), ("org/Model", None)):
        _refuse_unfit("it", base, of(named))
    with pytest.raises(ModelError, match="trained on org/other"):
        _refuse_unfit("it", "org/model", of("org/other"))


def test_runs_of_base_and_adapted_differ_in_the_adapter(llama, lora, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"the cat sat on the {i % 7} mat w{i}\n" for i in range(24)))
    words = ["run", "--model", str(llama), "--prompts", str(tmp_path / "texts.txt"), "--draw", "0",
             "--out", str(tmp_path / "runs"), "--quiet"]  # fmt: skip
    words += [f"--set=manifold.{name}=20" for name in ("n_permutations", "n_null", "n_bootstrap")]
    pages = [CliRunner().invoke(app, [*words, *more]).stdout.strip() for more in ([], ["--adapter", str(lora)])]
    first, second = map(interp.open_run, pages)
    assert "adapter" not in first.spec and second.spec["adapter"] == str(lora)
    assert first.model["fingerprint"] != second.model["fingerprint"] and "--adapter" in second.spec["command"]
    done = CliRunner().invoke(app, ["diff", str(first.path), str(second.path)])
    assert done.exit_code in (0, 1) and "numbers moved" in done.output and "spec.adapter" in done.output
    again = interp.run(interp.load(llama, adapter=lora), prompts=["the cat", "a dog"] * 9, cluster="none",
                       per_quintile=None, settings=QUICK, out=None, quiet=True)  # fmt: skip
    assert again.spec["adapter"] == str(lora)
    with pytest.raises(UsageError, match="in memory with adapter"):
        interp.run(interp.load(llama), adapter=str(lora), out=None, quiet=True)


def test_layers_that_an_adapter_repeats_are_read_and_what_cannot_be_merged_is_refused(llama, tmp_path):
    base, ids = AutoModelForCausalLM.from_pretrained(llama), torch.arange(3, 90, 7)[None]
    adapter_of(copy.deepcopy(base), tmp_path / "grown", ["q_proj"], layer_replication=[[0, 2], [1, 3]])
    with quiet_libraries():
        theirs = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "grown").eval()
    model = interp.load(llama, adapter=tmp_path / "grown")
    assert model.info.n_layers == 4 and all(check.passed for check in model.checks)
    with torch.no_grad():
        torch.testing.assert_close(model.module(ids).logits, theirs(ids).logits, rtol=1e-4, atol=1e-4)
    adapter_of(base, tmp_path / "biased", ["q_proj"], lora_bias=True)
    with pytest.raises(ModelError, match=r"(?s)cannot be merged into the weights \(.*no bias.*changes weights"):
        interp.load(llama, adapter=tmp_path / "biased")


SIZES = {"vocab_size": 101, "initializer_range": 0.2, "tie_word_embeddings": True}


KINDS = {
    "llama": (
        lambda: LlamaForCausalLM(LlamaConfig(**SIZES, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                                             num_attention_heads=2, max_position_embeddings=64)),
        ("embed_tokens", "lm_head", "q_proj"),
    ),
    "gpt2": (
        lambda: GPT2LMHeadModel(GPT2Config(**SIZES, n_embd=24, n_layer=2, n_head=2, n_positions=64)),
        ("wte", "lm_head", "c_attn"),
    ),
}  # fmt: skip
ADAPTERS = {
    "attention": lambda read, write, attention: {"target_modules": [attention]},
    "head": lambda read, write, attention: {"target_modules": [write]},
    "embedding": lambda read, write, attention: {"target_modules": [read]},
    "both": lambda read, write, attention: {"target_modules": [read, write, attention]},
    "both as one": lambda read, _, attention: {"target_modules": [read, attention], "ensure_weight_tying": True},
    "head by DoRA": lambda read, write, attention: {"target_modules": [write, attention], "use_dora": True},
    "embedding by DoRA": lambda read, write, attention: {"target_modules": [read], "use_dora": True},
    "head saved whole": lambda _, write, attention: {"target_modules": [attention], "modules_to_save": [write]},
    "embedding saved whole": lambda read, _, attention: {"target_modules": [attention], "modules_to_save": [read]},
    "a few tokens": lambda *names: {"target_modules": [names[2]], "trainable_token_indices": [3, 5, 9]},
}


def made(kind, adapter, folder, tokenizer, **changes):
    """Base and adapter as they lie on disk, and PEFT's reading of both."""
    torch.manual_seed(0)
    build, names = KINDS[kind]
    with quiet_libraries():
        build().save_pretrained(folder / "base")
        tokenizer.save_pretrained(folder / "base")
        base, other = (AutoModelForCausalLM.from_pretrained(folder / "base") for _ in range(2))
        adapter_of(other, folder / "adapter", **ADAPTERS[adapter](*names), **changes)
        return peft.PeftModel.from_pretrained(base, folder / "adapter").eval()


@pytest.mark.parametrize(("kind", "use_rslora"), [("llama", False), ("llama", True), ("gpt2", False)])
def test_merged_weights_are_the_formula_and_no_training_is_followed(kind, use_rslora, tmp_path, word_tokenizer):
    """Also of weights that are transposed, as those of GPT-2."""
    made(kind, "attention", tmp_path, word_tokenizer, use_rslora=use_rslora)
    base, adapted = interp.load(tmp_path / "base"), interp.load(tmp_path / "base", adapter=tmp_path / "adapter")
    before, scale = base.module.state_dict(), ALPHA / (R**0.5 if use_rslora else R)
    wanted = by_hand(before, tmp_path / "adapter", scale, is_transposed=kind == "gpt2")
    for name, weight in adapted.module.state_dict().items():
        torch.testing.assert_close(weight.double(), wanted[name].double(), rtol=1e-6, atol=1e-7)
    assert sum(not torch.equal(w, before[n]) for n, w in adapted.module.state_dict().items()) == base.info.n_layers
    assert adapted.info.adapter == str(tmp_path / "adapter") and base.info.adapter is None
    assert adapted.fingerprint != base.fingerprint and type(adapted.module) is type(base.module)
    names = [check.name for check in adapted.checks]
    assert names.count("adapter") == 1 and len(names) == len(base.checks) + 1 and all(c.passed for c in adapted.checks)
    with pytest.raises(UsageError, match="dynamics with --adapter"):
        _Session(RunSpec("gpt2", (), {}), (), _Clock(), Unfinished(), Chosen(())).refuse_misuse(adapted, [Dynamics()])


@torch.inference_mode()
@pytest.mark.parametrize("adapter", [each for each in ADAPTERS if each != "attention"])
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
