"""A model is read as it is described, or not at all: what its owner may do to it after it was loaded."""

import subprocess
import sys
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import AttentionInterface, AutoModelForCausalLM, GPT2Config
from transformers.integrations.sdpa_attention import sdpa_attention_forward as plain

import interp
from interp.errors import InterpError
from interp.hooks.attention import Listener, listening
from interp.hooks.state import weights_of
from tests.quick import quick
from tests.tiny_models import VOCAB, fresh_model, prompts_of

IDS = torch.tensor([np.random.default_rng(0).integers(3, VOCAB, 12).tolist()])
PROMPTS = prompts_of(*np.random.default_rng(1).integers(3, VOCAB, (4, 9)))
EDIT = interp.AblateHeads(layer=1, heads=(0, 1, 2, 3))


def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCAB, n_layer=3, n_head=4, n_embd=48, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    return interp.load(AutoModelForCausalLM.from_config(config).eval(), check=False)


def passing(model, block):
    with block, torch.no_grad():
        model.module(IDS)


READINGS = {
    "collect": lambda model: interp.collect(model, PROMPTS, ["v"]),
    "collect with edits": lambda model: interp.collect(model, PROMPTS, ["v"], edits=[EDIT]),
    "run": lambda model: interp.run(model, prompts=PROMPTS, probes=["manifold"], out=None, quiet=True),
    "generate": lambda model: interp.generate(model, PROMPTS, n_tokens=2),
    "applied": lambda model: passing(model, interp.applied(model, EDIT)),
    "a bypassed layer": lambda model: passing(model, interp.applied(model, interp.BypassLayer(layer=1))),
    "listening": lambda model: passing(model, interp.listening(model, Listener())),
    "with_means": lambda model: interp.with_means(model, PROMPTS, replace(EDIT, by="mean")),
    "logit_attribution": lambda model: interp.logit_attribution(model, PROMPTS),
    "patching_map": lambda model: interp.patching_map(model, IDS[0].tolist(), IDS[0].flip(0).tolist()),
    "check_model": interp.check_model,
    "a donor": lambda model: interp.collect(
        gpt2(), PROMPTS, ["v"], edits=[interp.PatternsOf(donor=model, layer=1)]
    ),
}  # fmt: skip


def quantised(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in module.transformer.h:  # GPT-2's own layers are not linear ones
            block.mlp = torch.nn.Sequential(torch.nn.Linear(48, 48))
        torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, inplace=True)


@contextmanager
def float32_products(precision):
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def with_own_attention(module):
    AttentionInterface.register("halved", lambda part, q, k, v, mask, **how: plain(part, q, k, v / 2, mask, **how))
    module.set_attn_implementation("halved")


CHANGES = {
    "training mode": lambda module: module.train(),
    "h.1.mlp.dropout is in training mode": lambda module: module.transformer.h[1].mlp.train(),
    "in float16 and were in float32": lambda module: module.half(),
    "its weights are in float16": lambda module: module.transformer.h[1].half(),
    "in float64 and were": lambda module: module.double(),
    "on meta and were on cpu|on offloaded and were": lambda module: module.to("meta"),
    "it has [0-9,]+ parameters and had": lambda module: module.resize_token_embeddings(120),
    "its part transformer.h.0.mlp is a Sequential": quantised,
    "its part transformer.wte is a Sequential": lambda module: setattr(
        module.transformer, "wte", torch.nn.Sequential(module.transformer.wte)
    ),
    "its attention is computed by 'halved', which is not one of transformers": with_own_attention,
    "return_dict=False": lambda module: setattr(module.config, "return_dict", False),
}
AROUND = {
    "default dtype is bfloat16": lambda: default_dtype(torch.bfloat16),
    "autocast is on": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "precision of float32 products is 'medium'": lambda: float32_products("medium"),
    "default device is meta": lambda: torch.device("meta"),
}


STATES = (*CHANGES, *AROUND)
EACH = [(found, reading) for found in STATES for reading in ("collect", "applied")]
EACH += [(found, reading) for found in ("training mode", "autocast is on") for reading in READINGS]


@pytest.mark.parametrize(("found", "reading"), dict.fromkeys(EACH))
def test_a_state_in_which_numbers_would_be_others_is_named(found, reading):
    model = gpt2()
    CHANGES.get(found, lambda module: None)(model.module)
    with AROUND.get(found, nullcontext)(), pytest.raises(InterpError, match=found):
        READINGS[reading](model)


@pytest.mark.parametrize("change", ["training mode", "autocast"])
@pytest.mark.parametrize("reading", ["applied", "listening"])
def test_every_pass_inside_a_block_is_looked_at(change, reading):
    model = gpt2()
    block = interp.applied(model, EDIT) if reading == "applied" else listening(model, Listener())
    with block:
        passing(model, nullcontext())
        around = torch.autocast("cpu", dtype=torch.bfloat16) if change == "autocast" else nullcontext()
        model.module.train(change == "training mode")
        with pytest.raises(InterpError, match=change), around:
            model.module(IDS)
        model.module.eval()
        passing(model, nullcontext())
    assert not model.module._forward_pre_hooks
    model.module.train()(IDS)  # afterwards it is its owner's again


def test_what_changes_no_number_is_read():
    """Modes of parts that leave nothing to chance, gradients, another attention, a finer default precision."""
    model = fresh_model("llama")
    want = interp.collect(model, PROMPTS, ["pattern_entropy", "z"])
    model.module.model.layers[1].mlp.train()
    model.module.requires_grad_(False)
    model.module.set_attn_implementation("eager")
    with default_dtype(torch.float64):
        got = interp.collect(model, PROMPTS, ["pattern_entropy", "z"])
    assert np.allclose(want["pattern_entropy"], got["pattern_entropy"], atol=1e-5)
    assert np.allclose(want["z"], got["z"], atol=1e-6)


COMPILED = {
    "the whole": lambda module: module.compile(backend="eager"),
    "its layers": lambda module: [layer.compile(backend="eager") for layer in module.model.layers],
    "its forward": lambda module: setattr(module, "forward", torch.compile(module.forward, backend="eager")),
    "an attention": lambda module: module.model.layers[1].self_attn.compile(backend="eager"),
    "the forward of an inner part": lambda module: setattr(
        module.model, "forward", torch.compile(module.model.forward, backend="eager")
    ),
    "a layer in a wrapper": lambda module: module.model.layers.__setitem__(
        1, torch.compile(module.model.layers[1], backend="eager")
    ),
}  # fmt: skip
EDITS = (
    EDIT, interp.BypassLayer(layer=1), interp.AttentionOff(layer=1), interp.FeedForwardOff(layer=1),
    interp.RemoveAxis(layer=1, site="resid", axis=np.eye(48)[0]),
    interp.RemoveAxis(layer=1, site="v", axis=np.eye(24)[0]),
)  # fmt: skip


def edited(model, edit):
    with interp.applied(model, edit), torch.no_grad():
        return model.module(IDS).logits


@pytest.mark.parametrize("what", quick(["the whole"], COMPILED))
@pytest.mark.parametrize("is_late", [True, False])
def test_compiled_code_is_set_aside_while_a_model_is_read(what, is_late):
    """Compiled before it is loaded or afterwards, and whether it has run or not."""
    torch.compiler.reset()
    plain = fresh_model("llama")
    want = {edit: edited(plain, edit) for edit in EDITS}
    module = fresh_model("llama").module
    if is_late:
        model = interp.load(module)
        COMPILED[what](module)
    else:
        COMPILED[what](module)
        with torch.no_grad():
            module(IDS)
        model = interp.load(module)
    before = [(part._compiled_call_impl, part.__dict__.get("forward")) for part in module.modules()]
    for edit in EDITS:
        assert torch.equal(edited(model, edit), want[edit])
    needs = ["pattern_entropy", "v", "resid", "mlp_out"]
    got, expected = interp.collect(model, PROMPTS, needs), interp.collect(plain, PROMPTS, needs)
    assert all(np.array_equal(got[need], expected[need]) for need in needs)
    assert before == [(part._compiled_call_impl, part.__dict__.get("forward")) for part in module.modules()]
    with torch.no_grad():
        assert torch.allclose(module(IDS).logits, plain.module(IDS).logits, atol=1e-5)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_model_that_is_being_trained_in_mixed_precision_is_read_in_its_own(is_late):
    want = interp.collect(fresh_model("llama"), PROMPTS, ["resid", "pattern_entropy"])
    module = fresh_model("llama").module
    early = interp.load(module) if is_late else None
    AcceleratorState._reset_state(True)
    try:
        assert Accelerator(cpu=True, mixed_precision="bf16").prepare(module) is module
    finally:
        AcceleratorState._reset_state(True)
    with torch.no_grad():
        trained = module(IDS).logits
    got = interp.collect(early or interp.load(module), PROMPTS, ["resid", "pattern_entropy"])
    assert all(np.array_equal(got[site], want[site]) for site in ("resid", "pattern_entropy"))
    with torch.no_grad():
        assert torch.equal(module(IDS).logits, trained)  # the training goes on as it did


@pytest.mark.parametrize("is_streamed", [False, True])
def test_captures_of_two_training_steps_hold_the_weights_of_each(tmp_path, is_streamed):
    model = fresh_model("llama")
    sites = ["W_Q", "W_K", "W_V", "W_O", "v", "resid"]
    optimiser = torch.optim.SGD(model.module.parameters(), lr=0.1)
    captures, names = [], []
    for step in range(2):
        captures.append(interp.collect(model, PROMPTS, sites, to=tmp_path / f"{step}" if is_streamed else None))
        names.append(model.fingerprint)
        before = {site: captures[-1][site].copy() for site in sites}
        model.module.train()
        model.module(IDS, labels=IDS).loss.backward()
        optimiser.step()
        model.module.eval()
        assert all(np.array_equal(captures[-1][site], before[site]) for site in sites)
    assert not any(np.array_equal(captures[0][site], captures[1][site]) for site in sites)
    layer = fresh_model("llama").module.model.layers[1].self_attn
    w = layer.v_proj.weight.detach().numpy().T  # [d_model, kv_head * d_head]
    assert np.array_equal(captures[0]["W_V"][1].swapaxes(0, 1).reshape(w.shape), w)
    model.module.lm_head.weight.data[0, 0] += 1.0  # past what PyTorch counts as a change
    assert len({*names, model.fingerprint}) == 3


def test_of_several_precisions_the_coarsest_is_named():
    module = fresh_model("llama").module
    module.model.layers[2].to(torch.float16)
    assert weights_of(module)["dtype"] == "float16"
    module.lm_head.to(torch.bfloat16)
    assert weights_of(module)["dtype"] == "bfloat16"
    module.model.layers[2].to(torch.float64)
    assert weights_of(module)["dtype"] == "bfloat16"


_COST = """
import time, torch, interp
from interp.hooks.attention import claimed
from interp.hooks.state import refuse_mode
torch.set_num_threads(1)
model = interp.load("tunnel:bijection-gpt-neox", check=False)

def seconds(work, n):
    times = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(n):
            work()
        times.append((time.process_time() - start) / n)
    return min(times)

def look():
    with claimed(model):
        pass

def run(*shape):
    ids = torch.zeros(shape, dtype=torch.long)
    return seconds(lambda: model.module(input_ids=ids, use_cache=False), 3)

with torch.inference_mode():
    print(seconds(look, 50) / run(16, 128), seconds(lambda: refuse_mode(model), 500) / run(1, 1))
"""


@pytest.mark.slow
def test_looking_costs_little_of_a_pass():
    """Of the smallest shipped model: all of the state for each batch, the mode for each single token (0.5 ms)."""
    done = subprocess.run([sys.executable, "-c", _COST], capture_output=True, text=True, check=True)
    of_batch, of_token = map(float, done.stdout.split())
    assert of_batch < 0.01 and of_token < 0.05
