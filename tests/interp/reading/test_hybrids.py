"""Models with other layers in place of attention or beside it: what is there is read under the layers' own numbers."""

from contextlib import ExitStack, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import interp
from interp.errors import ModelError, UsageError
from interp.family import HeadShape
from interp.hooks.block_hooks import first_of
from interp.need import Need
from interp.reading.batches import layers_of
from interp.reading.forward import packs_for
from interp.reading.lens import Lens
from interp.registry import load_entry
from interp.running.choose_probes import choose_probes, readable_probes
from tests.captures import assert_read_as_computed
from tests.quick import quick
from tests.reports.everything import SETTINGS
from tests.tiny_models import alike_prompts, prompts_of

_SIZES = {"vocab_size": 101, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4, "pad_token_id": 0,
          "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}  # fmt: skip
_MAMBA_2 = {"mamba_n_heads": 4, "mamba_d_head": 24, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
_LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "head_dim": 12,
           "linear_value_head_dim": 8}  # fmt: skip
HYBRIDS = {
    "lfm2": ({"layer_types": ["conv", "full_attention", "conv", "full_attention"]}, (1, 3)),
    "jamba": ({"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 2,
               "num_experts_per_tok": 1, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False}, (1, 3)),
    "bamba": ({"attn_layer_indices": [2], **_MAMBA_2}, (2,)),
    "qwen3_next": (_LINEAR | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                              "shared_expert_intermediate_size": 16}, (3,)),
    "qwen3_5_text": (_LINEAR, (3,)),
    "granitemoehybrid": ({"layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
                          "num_local_experts": 0, "shared_intermediate_size": 64, "residual_multiplier": 0.3,
                          "logits_scaling": 4.0, "attention_multiplier": 0.2, **_MAMBA_2}, (1,)),
    "falcon_h1": (_MAMBA_2 | {
        "mamba_d_ssm": 96, "key_multiplier": 0.4, "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7,
        "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6, "ssm_multipliers": [0.5, 0.6, 0.7, 0.8, 0.9],
        "mlp_multipliers": [0.8, 0.5], "embedding_multiplier": 2.0, "lm_head_multiplier": 0.3}, (0, 1, 2, 3)),
}  # fmt: skip
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
HYBRIDS["granitemoehybrid with experts"] = (HYBRIDS["granitemoehybrid"][0] | _EXPERTS, (1,))
WITH_GAPS = [kind for kind, (_, having) in HYBRIDS.items() if len(having) < 4]
"""Those with layers without attention."""
IDS = np.random.default_rng(0).integers(3, 101, 13)
PROMPTS = prompts_of(IDS)
SEVERAL = prompts_of(*np.random.default_rng(1).integers(3, 101, (24, 9)))
ATTENTION = [Need(name, at="all") for name in ("k", "v", "z", "pattern_row", "attn_out", "q_pre")]


def config_of(kind, **changes):
    return AutoConfig.for_model(kind.split()[0], **{**_SIZES, **HYBRIDS[kind][0], **changes})


@cache
def hybrid(kind):
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(config_of(kind)).eval()
    module = module if "qwen" in kind else module.double()  # whose linear attention has no float64
    module.config._experts_implementation = "eager"  # the fast one has no float64
    return interp.load(module)


@pytest.fixture(scope="module", params=HYBRIDS)
def model(request):
    return hybrid(request.param)


@pytest.fixture(scope="module", params=WITH_GAPS)
def with_gaps(request):
    return hybrid(request.param)


@pytest.mark.parametrize("kind", HYBRIDS)
def test_the_self_check_holds_and_says_where_there_is_attention(kind):
    model, having = hybrid(kind), HYBRIDS[kind][1]
    assert model.info.attention_layers == (having if kind in WITH_GAPS else None)
    assert model.info.layers_with_attention == having
    assert "residual" in {check.name for check in model.checks}
    assert all(check.passed and check.value <= check.bound / 10 for check in model.checks if check.bound)


def test_a_hybrid_without_any_attention_is_refused():
    config = config_of("jamba", attn_layer_period=8, attn_layer_offset=5)
    with pytest.raises(ModelError, match="family jamba: none of its 4 layers has attention"):
        interp.load(AutoModelForCausalLM.from_config(config).eval())


def test_attention_is_read_where_it_is_and_the_stream_everywhere(model):
    assert_read_as_computed(model, IDS)


def test_an_edit_reaches_text_that_is_generated_from_a_cache_as_whole_passes(model):
    ids, settings = torch.from_numpy(IDS)[None], {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    settings |= {"output_logits": True, "return_dict_in_generate": True}
    plain = model.module.generate(ids, use_cache=True, **settings).logits
    with interp.applied(model, interp.AblateHeads(layer=model.info.layers_with_attention[-1], heads=1)):
        cached, whole = (model.module.generate(ids, use_cache=each, **settings).logits for each in (True, False))
    for step, (found, expected) in enumerate(zip(cached, whole, strict=True)):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, msg=lambda m, step=step: f"step {step}: {m}")
    assert not torch.allclose(cached[0], plain[0], atol=1e-3), "the edit acts"


def test_a_layer_is_named_by_its_own_number(model):
    layer = model.info.layers_with_attention[-1]
    one = interp.collect(model, PROMPTS, ATTENTION, layers=[layer])
    every = interp.collect(model, PROMPTS, ATTENTION)
    for need in ATTENTION:
        np.testing.assert_allclose(one[need][0], every[need][-1], rtol=1e-6)
    weights = interp.collect(model, PROMPTS, ["W_V"], layers=[layer])[Need("W_V")][0]
    attention = model.family.attention_by_layer(model.module)[layer]
    np.testing.assert_allclose(np.hstack(weights), attention.v_proj.weight.T.detach().numpy(), rtol=1e-6)


def test_a_layer_without_attention_is_refused_in_words(with_gaps):
    model = with_gaps
    with pytest.raises(UsageError, match="at layer 0") as caught:
        layers_of(Need("v"), [0], model.info)
    assert "can be read and edited everywhere" in str(caught.value)
    for edit in (interp.AblateHeads(layer=0, heads=1), interp.AttentionOff(layer=0)):
        with pytest.raises(UsageError, match="has no attention"), interp.applied(model, edit):
            pass


@pytest.mark.parametrize(
    "name", quick(["attention_entropy", "qk_alignment"], ["attention_entropy", "qk_alignment", "manifold"])
)
def test_probes_of_attention_see_the_layers_that_have_it_under_their_own_numbers(with_gaps, name):
    model = with_gaps
    found = interp.run(
        model, probes=name, settings={name: SETTINGS[name]}, prompts=SEVERAL, per_quintile=None, out=None, quiet=True
    ).findings[name]
    having = list(model.info.layers_with_attention)
    numbered = [table["layer"] for table in found.tables.values() if table.units.get("layer") == "layer"]
    assert numbered and all(set(layers.tolist()) <= set(having) for layers in numbered)
    assert any(set(layers.tolist()) == set(having) for layers in numbered)
    assert f"{len(having)} of 4 layers have attention ({', '.join(map(str, having))})" in found.notes[-1]
    load_entry("probe", name)().figures(found)


def test_a_number_of_a_layer_is_that_of_the_layer(model):
    probe = load_entry("probe", "attention_entropy")()
    capture = interp.collect(model, SEVERAL, probe.needs)
    by_layer = interp.analyse(capture, probe, per_quintile=None).findings[probe.name].tables["by_layer"]
    scored = by_layer.where(by_layer["positions"] == "scored")
    assert scored["layer"].tolist() == list(model.info.layers_with_attention)
    for layer, entropy in zip(scored["layer"].tolist(), scored["entropy"], strict=True):
        read = interp.collect(model, SEVERAL, ["pattern_entropy"], layers=[layer])
        assert entropy == pytest.approx(read[Need("pattern_entropy")].mean(), rel=1e-5)


@pytest.mark.slow
def test_a_layer_that_a_probe_names_is_its_own_number(model):
    layer = model.info.layers_with_attention[-1]
    run = {"prompts": SEVERAL, "per_quintile": None, "out": None, "quiet": True}
    named, last = (
        interp.run(
            model, probes="manifold", settings={"manifold": {**SETTINGS["manifold"], "layer": at}}, **run
        ).findings["manifold"]
        for at in (layer, -1)
    )
    assert {name: s.value for name, s in named.items()} == pytest.approx(
        {name: s.value for name, s in last.items()}, nan_ok=True
    )
    if model.info.attention_layers is None:
        return
    with pytest.raises(UsageError, match=r"layer 0 of .* has no attention") as caught:
        interp.run(model, probes="manifold", settings={"manifold": {"layer": 0}}, **run)
    assert str(layer) in str(caught.value)


@pytest.mark.parametrize("name", ["components", "causal"])
def test_probes_that_want_every_layer_are_refused_and_those_of_the_stream_are_not(with_gaps, name):
    model = with_gaps
    (probe,) = readable_probes(model, choose_probes(["manifold"], {"manifold": {"site": "resid"}}))
    assert probe.name == "manifold"
    with pytest.raises(UsageError, match="no attention in every layer"):
        readable_probes(model, choose_probes([name], {}))
    beside = hybrid("falcon_h1")  # a mixer beside attention in every layer: only components cannot take it in
    assert len(readable_probes(beside, choose_probes(["causal", "heads"], {}))) == 2
    with pytest.raises(UsageError, match="a state-space model adds to the stream beside them"):
        readable_probes(beside, choose_probes(["components"], {}))


def test_shares_of_a_logit_add_up_to_it_and_that_of_the_mixer_is_what_its_module_adds(model):
    added = {}
    with ExitStack() as stack:
        for layer, block in enumerate(model.family.layer_modules(model.module)):
            for mixer in model.family.summed_modules(block).get("mixer_out", ()):

                def keep(module, args, out, layer=layer):
                    added[layer] = first_of(out)[0, -1]

                stack.callback(mixer.register_forward_hook(keep).remove)
        with torch.inference_mode():
            passed = model.module(torch.from_numpy(IDS)[None], use_cache=False, output_hidden_states=True)
    found, logits = interp.logit_attribution(model, PROMPTS, n_null=1), passed.logits[0, -1]
    assert found.total[0] == pytest.approx(float(logits.max() - logits.mean()), rel=1e-5)
    assert set(found.to_frame()["layer"]) == set(model.info.layers_with_attention)
    (last,) = interp.collect(model, PROMPTS, ["resid"])[Need("resid")][-1:]
    with torch.inference_mode():
        last = torch.from_numpy(last).to(logits.dtype)
        direction = Lens(model).direction(last, logits.argmax()[None])[0].to(logits.dtype)
    factor = {"falcon_h1": 0.6, "granitemoehybrid": 0.3}.get(model.info.family, 1.0)
    expected = [float(added[n] @ direction) * factor if n in added else 0.0 for n in range(4)]
    np.testing.assert_allclose(found.mixer[0], expected, atol=1e-5)


def test_a_head_without_its_columns_of_the_output_projection_is_an_ablated_head(model):
    """And layers are bypassed everywhere; nothing of an edit stays."""
    layer, ids = model.info.layers_with_attention[-1], torch.from_numpy(IDS)[None]
    without = deepcopy(model.module)
    projection = model.family.attention_by_layer(without)[layer].get_submodule(model.family.out)

    def logits(*edits):
        with torch.inference_mode(), interp.applied(model, *edits) if edits else nullcontext():
            return model.module(ids, use_cache=False).logits

    plain = logits()
    with torch.inference_mode():
        projection.weight[:, 12:24] = 0.0
        edited = logits(interp.AblateHeads(layer=layer, heads=1))
        torch.testing.assert_close(edited, without(ids, use_cache=False).logits, rtol=1e-5, atol=1e-5)
    for edit in (interp.AttentionOff(layer=layer), interp.BypassLayer(layer=0), interp.FeedForwardOff(layer=0)):
        assert (logits(edit) - plain).abs().max() > 1e-3
        (log_p,) = interp.collect(model, PROMPTS, ["next_log_prob"], edits=edit)["next_log_prob"] * np.log(2)
        np.testing.assert_allclose(log_p, logits(edit)[0, -1].log_softmax(dim=-1), atol=1e-4)
    assert torch.equal(logits(), plain)


def test_texts_go_on_alike_with_and_without_a_cache(model):
    edit = interp.RemoveAxis(1, site="resid", axis=np.random.default_rng(1).normal(size=(2, 48)))
    kept, afresh = (interp.generate(model, PROMPTS, edit, n_tokens=8, cache=cache)[0] for cache in (True, False))
    assert (kept.ids, kept.edited_ids) == (afresh.ids, afresh.edited_ids)


def test_a_feed_forward_of_two_modules_is_read_and_switched_off_as_one():
    model, ids, need = hybrid("granitemoehybrid with experts"), torch.from_numpy(IDS)[None], Need("mlp_out", at="all")
    block = model.family.layer_modules(model.module)[2]
    given = []
    remove = block.post_attention_layernorm.register_forward_hook(lambda module, args, out: given.append(out)).remove
    read = interp.collect(model, PROMPTS, [need])[need][2]
    remove()
    with torch.inference_mode():
        sum_of_both = block.block_sparse_moe(given[0]) + block.shared_mlp(given[0])
        np.testing.assert_allclose(read, 0.3 * sum_of_both[0].numpy(), rtol=1e-5, atol=1e-6)
        without = deepcopy(model.module)
        silent = model.family.layer_modules(without)[2]
        silent.block_sparse_moe.experts.down_proj[:] = 0.0
        silent.shared_mlp.output_linear.weight[:] = 0.0
        with interp.applied(model, interp.FeedForwardOff(layer=2)):
            edited = model.module(ids, use_cache=False).logits
            assert not interp.collect(model, PROMPTS, [need])[need][2].any()
        torch.testing.assert_close(edited, without(ids, use_cache=False).logits, rtol=1e-5, atol=1e-5)
    assert interp.collect(model, PROMPTS, [Need("router_weight")])[Need("router_weight")].shape == (4, 1, 4)


@pytest.mark.parametrize(("kind", "wrong"), [
    ("falcon_h1", {"added_times": None}), ("falcon_h1", {"mixer": None}),
    ("granitemoehybrid with experts", {"mlp": "shared_mlp"}),
    ("granitemoehybrid with experts", {"mlp": "block_sparse_moe"}),
])  # fmt: skip
def test_a_family_that_leaves_out_a_part_or_its_factor_fails_the_self_check(kind, wrong):
    model = hybrid(kind)
    with pytest.raises(ModelError, match="the self-check 'residual' failed"):
        interp.check_model(replace(model, family=replace(model.family, **wrong)))


def test_keys_without_their_factor_fail_the_self_check(monkeypatch):
    model, shape = hybrid("falcon_h1"), HeadShape(4, 2, 12)
    assert model.family.head_shape(model.config) == replace(shape, key_scale=0.4)
    monkeypatch.setattr(type(model.family), "head_shape", lambda self, config: shape)
    with pytest.raises(ModelError, match="the self-check 'rotary' failed"):
        interp.check_model(model)


def test_prompts_that_begin_alike_are_not_laid_out_as_a_tree(model):
    _, ids = alike_prompts()
    assert all(pack.is_plain for pack in packs_for(model, ids, [Need("resid")], proved=False))
