"""Ropes that depend on how long a pass is: every prompt is read as it is in a pass of its own."""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from packaging.version import Version
from transformers import AutoConfig, AutoModelForCausalLM, __version__

import interp
from interp.editing.conditions import Run
from interp.editing.screen import read_screen
from interp.errors import ModelError, PromptError, UsageError
from interp.hooks.ropes import longest_input, rope_scales
from interp.probe import Screen
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import packs_for
from interp.self_check.selfcheck import check_model
from tests.quick import quick
from tests.tiny_models import prompts_of

LIMIT, VOCAB = 16, 60
SHORT, LONG = [1.0] * 8, [1.0 + 3 * i for i in range(8)]
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": LIMIT, "factor": 4.0,
    "short_factor": SHORT, "long_factor": LONG,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e2, "factor": 8.0}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
BY_KIND = {"sliding_attention": PLAIN, "full_attention": LONGROPE}
MODELS = {
    "phi3 longrope": ("phi3", LONGROPE, {"max_position_embeddings": 64, "original_max_position_embeddings": LIMIT}),
    "llama longrope": ("llama", LONGROPE, {"max_position_embeddings": 64}),
    "phimoe longrope": ("phimoe", {**LONGROPE, "short_mscale": 1.1, "long_mscale": 1.7},
                        {"max_position_embeddings": 64, "num_local_experts": 2}),
    "gemma3 longrope": ("gemma3_text", BY_KIND, {"max_position_embeddings": 64, "sliding_window": 64,
                        "layer_types": ["sliding_attention", "full_attention"]}),
    "llama dynamic": ("llama", DYNAMIC, {"max_position_embeddings": LIMIT}),
    "qwen3 dynamic": ("qwen3", DYNAMIC, {"max_position_embeddings": LIMIT}),
    "gemma3 dynamic": ("gemma3_text", {"sliding_attention": {**DYNAMIC, "rope_theta": 5e2}, "full_attention": DYNAMIC},
                       {"max_position_embeddings": LIMIT, "sliding_window": 64,
                        "layer_types": ["sliding_attention", "full_attention"]}),
}  # fmt: skip
if Version(__version__) < Version("5.21"):  # it fails there as it is built: no second frequencies
    del MODELS["gemma3 longrope"]
FEW = ("llama longrope", "llama dynamic")
NEEDS = [interp.Need(site) for site in ("k", "z", "resid", "pattern_entropy", "next_log_prob")]


def config_of(kind, rope, more):
    return AutoConfig.for_model(
        kind, vocab_size=VOCAB, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, pad_token_id=0, bos_token_id=1, eos_token_id=None, initializer_range=0.3,
        rope_parameters=rope, **more,
    )  # fmt: skip


@cache
def tiny(name):
    torch.manual_seed(0)
    return interp.load(AutoModelForCausalLM.from_config(config_of(*MODELS[name])).eval())


def around_the_limit(header=0):
    """Prompts of lengths below, at and above the limit, out of order, the first `header` tokens in common."""
    rng = np.random.default_rng(0)
    lengths = (LIMIT + 9, 7, LIMIT, LIMIT + 1, 12, LIMIT + 9, LIMIT + 4, LIMIT - 1)
    same = rng.integers(3, VOCAB, header)
    return [np.concatenate([same[:n], rng.integers(3, VOCAB, max(0, n - header))]) for n in lengths]


def by_hand(model, ids):
    """Entropies of the last row of every layer and head, and log2 probabilities, of a first pass of transformers."""
    module = deepcopy(model.module)
    module.set_attn_implementation("eager")
    with torch.no_grad():
        out = module(torch.tensor(ids)[None], output_attentions=True, use_cache=False)
    rows = torch.stack([a[0, :, -1] for a in out.attentions])
    return -torch.special.xlogy(rows, rows).sum(-1) / np.log(2), torch.log_softmax(out.logits[0, -1], -1) / np.log(2)


@pytest.mark.parametrize("name", quick(FEW, MODELS))
def test_prompts_read_together_are_read_as_each_alone_edited_or_not(name):
    model, sequences, edits = tiny(name), around_the_limit(), [interp.AblateHeads(layer=1, heads=(0, 3))]
    together = interp.collect(model, prompts_of(*sequences), NEEDS)
    edited = interp.collect(model, prompts_of(*sequences), NEEDS[-1:], edits=edits)["next_log_prob"]
    for i, ids in enumerate(sequences):
        alone = interp.collect(model, prompts_of(ids), NEEDS)
        for need in NEEDS:
            at = (slice(None), i) if need.site != "next_log_prob" else i
            own = alone[need][:, 0] if need.site != "next_log_prob" else alone[need][0]
            np.testing.assert_allclose(together[need][at], own, rtol=1e-3, atol=2e-4, err_msg=f"{need} {len(ids)}")
        entropies, log_p = by_hand(model, ids)
        np.testing.assert_allclose(together["pattern_entropy"][:, i], entropies, atol=2e-4)
        np.testing.assert_allclose(together["next_log_prob"][i], log_p, atol=1e-3)
        own = interp.collect(model, prompts_of(ids), NEEDS[-1:], edits=edits)["next_log_prob"][0]
        np.testing.assert_allclose(edited[i], own, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("name", MODELS)
def test_prompts_of_one_rotation_still_share_their_header(name):
    ids = [x for x in around_the_limit(6) if len(x) <= LIMIT]
    packs = packs_for(tiny(name), [*ids, *around_the_limit(6)[:1]], [interp.Need("v")])
    assert any(not pack.is_plain for pack in packs)


@pytest.mark.parametrize("name", quick(FEW, MODELS))
def test_gradients_of_prompts_together_are_those_of_each_alone(name):
    model, sequences = tiny(name), around_the_limit()

    def slopes(ids):
        texts = PromptSet("texts", [Prompt(text=str(i)) for i in range(len(ids))])
        edits = (interp.AblateHeads(layer=0, heads=(0, 1, 2, 3)),)
        return read_screen(model, Run(texts, ids), Screen({"one": edits}, "loss", 1, np.arange(len(ids)), 0))["one"]

    together = slopes(sequences)["slope"]
    for i, ids in enumerate(sequences):
        np.testing.assert_allclose(together[i], slopes([ids])["slope"][0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "edits", [pytest.param((), marks=pytest.mark.slow), (interp.AblateHeads(layer=0, heads=(1, 2)),)]
)
@pytest.mark.parametrize("name", quick(FEW, MODELS))
def test_continuations_that_pass_the_limit_are_those_without_a_cache(name, edits):
    model = tiny(name)
    prompts = prompts_of(*(np.random.default_rng(i).integers(3, VOCAB, LIMIT - 5 + 4 * i) for i in range(3)))
    n = 12 if longest_input(model.module.config) is None else 14
    for temperature in (0.0, 1.0):
        asked = {"n_tokens": n, "temperature": temperature}
        cached, whole = (interp.generate(model, prompts, edits, cache=cache, **asked) for cache in (True, False))
        assert [(c.ids, c.edited_ids) for c in cached] == [(c.ids, c.edited_ids) for c in whole]
    for prompt, one in zip(prompts, interp.generate(model, prompts, n_tokens=n), strict=True):
        *before, last = (*prompt.token_ids, *one.ids)
        assert last == int(by_hand(model, np.array(before))[1].argmax())


@pytest.mark.parametrize("name", [name for name in MODELS if "dynamic" in name])
def test_a_longer_pass_before_changes_nothing_and_is_not_forgotten(name):
    model, ids = tiny(name), torch.from_numpy(around_the_limit()[0])[None]
    model = replace(model, module=deepcopy(model.module))
    shorter = [ids[:, :LIMIT], ids[:, : LIMIT + 2]]

    def read():
        return [interp.collect(model, prompts_of(x[0]), ["next_log_prob"])["next_log_prob"] for x in shorter]

    expected = read()
    with torch.no_grad():
        model.module(ids, use_cache=False)
        theirs = model.module(shorter[1], use_cache=False).logits  # transformers rotates it as the longer one before
        np.testing.assert_array_equal(read(), expected)
        assert torch.equal(model.module(shorter[1], use_cache=False).logits, theirs)
    assert all(check.passed for check in check_model(model))


def test_a_rope_that_is_not_what_its_configuration_says_is_refused(monkeypatch):
    monkeypatch.setattr("interp.self_check.checks.rope_scales", lambda config, lengths: np.zeros(len(lengths)))
    for name in MODELS:
        with pytest.raises(ModelError, match="'shared' failed"):
            check_model(tiny(name))


def test_scales_grow_with_the_length_up_to_learnt_positions():
    for name in MODELS:
        found = rope_scales(config_of(*MODELS[name]), np.arange(1, 40))
        assert (np.diff(found) >= 0).all() and len(set(found[:LIMIT])) == 1 and found[LIMIT] > found[LIMIT - 1]
        assert len(set(found[LIMIT:])) == (1 if "longrope" in name else 39 - LIMIT)
    assert longest_input(AutoConfig.for_model("gpt2", n_positions=24)) == 24
    assert longest_input(AutoConfig.for_model("mamba")) is None


@pytest.mark.parametrize(
    ("rope", "stated", "expected"),
    [
        (PLAIN, 32, 32),
        (LINEAR, 32, 128),
        ({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}, 32, 128),
        ({"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}, 128, 128),
        ({"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 24}, 40, 48),
        ({"rope_type": "llama3", "rope_theta": 1e4, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}, 64, 64),
        (LONGROPE, 64, 64),
        (DYNAMIC, 32, None),
        ({"sliding_attention": PLAIN, "full_attention": LINEAR}, 64, 64),
        ({"sliding_attention": PLAIN, "full_attention": DYNAMIC}, 64, 64),
    ],
)  # fmt: skip
def test_a_model_reads_as_far_as_its_rope_was_stretched(rope, stated, expected):
    kind = "llama" if "rope_type" in rope else "gemma3_text"
    layers = {} if kind == "llama" else {"layer_types": list(rope)}
    config = config_of(kind, rope, {"max_position_embeddings": stated, **layers})
    model = interp.load(AutoModelForCausalLM.from_config(config).eval())
    assert model.info.max_positions == expected
    n = 100 if expected is None else expected
    assert interp.collect(model, prompts_of(np.full(n, 5)), ["next_log_prob"])["next_log_prob"].shape == (1, VOCAB)
    if expected is not None:
        with pytest.raises(PromptError, match=f"reads at most {expected}"):
            interp.collect(model, prompts_of(np.full(n + 1, 5)), ["next_log_prob"])
        with pytest.raises(UsageError, match=f"reads {expected} positions"):
            interp.generate(model, prompts_of(np.full(n, 5)), n_tokens=1)
