"""A model in memory as its owner holds it: what stands in the way is named with what to do, and doing that helps."""

import copy
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, TextGenerationPipeline

import interp
from interp.errors import InterpError, ModelError, UsageError
from interp.family import Layout
from interp.loading.quiet_libraries import quiet_libraries
from interp.need import Need
from interp.reading.forward import capture
from interp.reductions import Rows
from interp.self_check.selfcheck import check_model
from interp.self_check.witnesses import any_tokenizer
from tests.interp.hooks.test_attention import relative, token_prompts
from tests.tiny_models import FAMILIES, fresh_model, tiny_model


def llama():
    return fresh_model("llama").module


def adapted(module):
    peft = pytest.importorskip("peft", reason="the extra peft is not installed")
    with quiet_libraries():
        return peft.get_peft_model(module, peft.LoraConfig(target_modules=["q_proj"], r=2)).eval()


def prompted(module):
    peft = pytest.importorskip("peft", reason="the extra peft is not installed")
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    with quiet_libraries():
        return peft.get_peft_model(module, settings).eval()


def pipeline(module):
    made = object.__new__(TextGenerationPipeline)
    made.model, made.tokenizer = module, object()
    return made


class Chat:
    def __init__(self, module):
        self.network = module


WRAPPERS = {
    "compiled": (
        lambda module: torch.compile(module, backend="eager"),
        r"around a LlamaForCausalLM.*`interp.load\(given._orig_mod\)`",
    ),
    "parallel": (nn.DataParallel, r"around a LlamaForCausalLM.*`interp.load\(given.module\)`"),
    "a module of one's own": (lambda module: nn.ModuleDict({"inner": module}), r"`interp.load\(given.inner\)`"),
    "an object of one's own": (Chat, r"`interp.load\(given.network\)`"),
    "a pipeline": (pipeline, r"around a LlamaForCausalLM.*`interp.load\(given.model\)`"),
    "a class": (type, "neither a name, nor a transformers model"),
    "a configuration": (lambda module: module.config, "neither a name, nor a transformers model"),
    "adapted": (adapted, r"around a LlamaForCausalLM.*merge_and_unload\(\).*adapter=folder"),
    "prompted": (prompted, r"prompts or prefixes before every text.*given.base_model.*without its adapter"),
    "its weights": (lambda module: module.state_dict(), "neither a name, nor a transformers model"),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_what_is_round_a_model_is_named(name):
    wrap, told = WRAPPERS[name]
    with pytest.raises(UsageError, match=f"(?s){told}"):
        interp.load(wrap(llama()))


def test_a_loaded_model_comes_back():
    model = interp.load(llama())
    assert interp.load(model) is model
    unchecked = replace(model, checks=())
    assert interp.load(unchecked, check=False) is unchecked
    assert interp.load(unchecked).checks
    for asked in ({"dtype": "float64"}, {"tokenizer": "gpt2"}):
        with pytest.raises(UsageError, match=f"with {next(iter(asked))}"):
            interp.load(model, **asked)


def inject_adapter(module):
    peft = pytest.importorskip("peft", reason="the extra peft is not installed")
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["q_proj"], r=2), module)
    module.eval()


def quantise(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, inplace=True)


class RoundedWeight(nn.Parameter):
    __module__ = "torchao.quantization"


def round_weight(projection):
    projection.weight.__class__ = RoundedWeight


UNREADABLE = {
    "an adapter": (inject_adapter, "contains an adapter of PEFT.*layers.0.self_attn.q_proj.*Merge"),
    "a layer on meta": (lambda module: module.model.layers[1].to("meta"), r"device meta.*layers\.1\..*from_pretrained"),
    "a quantised part": (
        lambda module: quantise(module.model.layers[2].mlp),
        r"quantised it .*layers\.2\.mlp.*before `",
    ),
    "a weight of torchao": (
        lambda module: round_weight(module.model.layers[0].self_attn.q_proj),
        r"torchao quantised it .*layers\.0\.self_attn\.q_proj, RoundedWeight.*before `",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_before_anything_runs(name):
    change, told = UNREADABLE[name]
    module = llama()
    change(module)
    with pytest.raises(ModelError, match=f"(?s){told}"):
        interp.load(module, check=False)


def without_hooks(module):
    for part in module.modules():
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()


def without_forwards(module):
    for part in module.modules():
        vars(part).pop("forward", None)


def patch(find, around):
    def change(module):
        part = find(module)
        plain = part.forward
        part.forward = lambda *args, **keywords: around(plain, *args, **keywords)

    return change


def scaled_logits(plain, *args, **keywords):
    out = plain(*args, **keywords)
    out.logits = out.logits * 2
    return out


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


CHANGED = {
    "a layer in another precision": (lambda m: m.model.layers[1].to(torch.bfloat16),
        "layers.1.*in torch.bfloat16.*Cast it to one precision", lambda m: m.float()),
    "a part of another class": (lambda m: setattr(m.model.layers[1].self_attn.v_proj, "__class__", Doubled),
        "its part model.layers.1.self_attn.v_proj is a Doubled of .*test_in_memory; .*'projections'",
        lambda m: setattr(m.model.layers[1].self_attn.v_proj, "__class__", nn.Linear)),
    "a hook on the whole": (lambda m: m.register_forward_hook(lambda part, args, out: out.logits),
        "the model as a whole has a hook.*Remove it", without_hooks),
    "a hook on a layer": (lambda m: m.model.layers[1].register_forward_hook(lambda part, args, out: out * 1.1),
        r"its part model.layers.1 has a hook.*'residual'", without_hooks),
    "a hook before a layer": (
        lambda m: m.model.layers[2].register_forward_pre_hook(lambda part, args: (args[0] * 1.1, *args[1:])),
        r"its part model.layers.2 has a hook", without_hooks),
    "a patched layer": (patch(lambda m: m.model.layers[1], lambda plain, *a, **k: plain(*a, **k) * 1.1),
        "its part model.layers.1 has a forward of its own.*del part.forward", without_forwards),
    "a patched attention": (patch(lambda m: m.model.layers[1].self_attn, lambda plain, hidden_states, **k:
        (hidden_states / 2, None)), "part model.layers.1.self_attn has a forward.*'captured'", without_forwards),
    "a patched model": (patch(lambda m: m, scaled_logits), "the model as a whole has a forward", without_forwards),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_the_owner_changed_is_the_reason_and_the_advice_helps(name):
    change, told, mend = CHANGED[name]
    module = llama()
    change(module)
    with pytest.raises(InterpError, match=f"(?s){told}") as refusal:
        interp.load(module)
    assert "report the model" not in str(refusal.value)
    assert "copy config.json" not in str(refusal.value)
    mend(module)
    assert interp.load(module).checks


def no_kernel(plain, *args, **keywords):
    raise ImportError("no kernel of this name")


BROKEN = {
    "a kernel that is not there": patch(lambda m: m.model.layers[0].self_attn, no_kernel),
    "a smaller embedding": lambda m: setattr(m.model, "embed_tokens", nn.Embedding(7, 48)),
    "a smaller projection": lambda m: setattr(m.model.layers[0].self_attn, "q_proj", nn.Linear(48, 5, bias=False)),
    "a layer less": lambda m: m.model.layers.__delitem__(1),
    "a layer more": lambda m: m.model.layers.append(copy.deepcopy(m.model.layers[0])),
    "more heads": lambda m: setattr(m.config, "num_attention_heads", 8),
    "no head": lambda m: setattr(m, "lm_head", None),
    "the identity for a layer": lambda m: m.model.layers.__setitem__(1, nn.Identity()),
}


@pytest.mark.parametrize("name", BROKEN)
def test_parts_that_do_not_fit_together_are_refused(name):
    module = llama()
    BROKEN[name](module)
    with pytest.raises(ModelError):
        interp.load(module)


class MyOwn(LlamaForCausalLM):
    """A class of one's own, which predicts as the one it is made of."""


READABLE = {
    "a class of one's own": lambda m: setattr(m, "__class__", MyOwn),
    "a harmless hook": lambda m: m.model.layers[1].register_forward_hook(lambda part, args, out: None),
    "a layer removed": lambda m: (m.model.layers.pop(1), setattr(m.config, "num_hidden_layers", 2)),
    "a part of one's own": lambda m: setattr(m.model.layers[1], "mlp", nn.Sequential(nn.Linear(48, 48), nn.Tanh())),
    "tied": lambda m: setattr(m.lm_head, "weight", m.model.embed_tokens.weight),
    "bfloat16": nn.Module.bfloat16,
}


@pytest.mark.parametrize("name", READABLE)
def test_what_passes_the_checks_is_read_as_it_is(name):
    module = llama()
    READABLE[name](module)
    assert all(check.passed for check in interp.load(module).checks)


def test_what_libraries_put_on_a_model_is_not_its_owners():
    class WrongOrder(Layout):
        def pick(self, out, which, shape):
            return super().pick(out, "qkv"[::-1]["qkv".index(which)], shape)

    model = fresh_model("gpt_neox")
    model.module.enable_input_require_grads()
    wrong = replace(model.family, layout=WrongOrder("per_head", ("query_key_value",)))
    with pytest.raises(
        ModelError, match=r"(?s)reading tiny-gpt_neox.*: the self-check 'projections'.*report the model"
    ):
        check_model(replace(model, family=wrong))


SHARED = {
    "the whole layer": lambda layers: layers.__setitem__(2, layers[0]),
    "self_attn": lambda layers: setattr(layers[2], "self_attn", layers[0].self_attn),
    "mlp": lambda layers: setattr(layers[2], "mlp", layers[0].mlp),
    "self_attn.v_proj": lambda layers: setattr(layers[2].self_attn, "v_proj", layers[0].self_attn.v_proj),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_module_of_two_layers_is_refused_and_the_model_left_as_it_was(name):
    module = llama()
    SHARED[name](module.model.layers)
    before, ids = module.config._attn_implementation, torch.arange(7)[None]
    with torch.inference_mode():
        plain = module(ids).logits
        with pytest.raises(ModelError, match=rf"layers 0 and 2 share one module \({name}, ") as refused:
            interp.load(module, check=False)
        assert "deepcopy" in refused.value.fix and module.config._attn_implementation == before
        assert torch.equal(module(ids).logits, plain)


def test_copies_that_share_their_weights_are_read():
    module = fresh_model("llama").module
    layers = module.model.layers
    layers[2] = copy.deepcopy(layers[0])
    for attention in (each.self_attn for each in layers):
        attention.layer_idx = [each.self_attn for each in layers].index(attention)
    for mine, theirs in zip(layers[2].modules(), layers[0].modules(), strict=True):
        for part, weight in theirs.named_parameters(recurse=False):
            setattr(mine, part, weight)
    assert all(check.passed for check in interp.load(module).checks)


def test_copies_of_all_layers_are_read_though_each_has_a_configuration_of_its_own():
    model = fresh_model("mistral")
    prompts, sites = token_prompts((7, 12))[0], ["resid", "pattern_entropy"]
    plain = interp.collect(model, prompts, sites)
    layers = model.module.model.layers
    for n, layer in enumerate([*layers]):
        layers[n] = copy.deepcopy(layer)
    read = interp.collect(interp.load(model.module), prompts, sites)
    assert all((read[site] == plain[site]).all() for site in sites)


def test_a_processor_has_a_tokenizer_and_what_has_none_is_refused(without_type_checks):
    processor = SimpleNamespace(tokenizer=any_tokenizer())
    assert interp.load(llama(), tokenizer=processor, check=False).tokenizer is processor.tokenizer
    for given in (3, nn.Linear(2, 2), SimpleNamespace(tokenizer=3)):
        with pytest.raises(UsageError, match=rf"tokenizer given \({type(given).__name__}\): it is no tokenizer"):
            interp.load(llama(), tokenizer=given)


def boot(family, folder):
    from transformer_lens.model_bridge import TransformerBridge

    model = tiny_model(family)
    config = copy.deepcopy(model.module.config)
    config.architectures = [type(model.module).__name__]
    config.save_pretrained(folder)
    any_tokenizer().save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TransformerBridge.boot_transformers(str(folder), hf_model=copy.deepcopy(model.module), device="cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_bridge_is_read_as_the_model_inside_it(family, tmp_path):
    bridge = boot(family, tmp_path)
    before = bridge(torch.arange(7)[None])
    model = interp.load(bridge)
    assert [c.name for c in model.checks if c.name == "bridge"] == ["bridge"]
    prompts, ids = token_prompts([9])
    needs = [Need("v", Rows()), Need("k"), Need("pattern_entropy")]
    ours, theirs = capture(model, prompts, ids, needs), capture(tiny_model(family), prompts, ids, needs)
    for need in needs:
        assert relative(ours[need], theirs[need]) < 1e-5
    assert torch.equal(bridge(torch.arange(7)[None]), before)
    shared = {id(p) for p in bridge.original_model.parameters()}
    assert all(id(p) in shared for p in model.module.parameters())


def test_a_bridge_with_changed_parts_is_refused(tmp_path):
    bridge = boot("llama", tmp_path)
    bridge.blocks[0].attn.hook_z.add_hook(lambda z, hook: z * 0)
    with pytest.raises(ModelError, match="other logits than the bridge"):
        interp.load(bridge)
