"""Further families with tiny random weights: they pass the self-check, statistics included."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
import torch
from packaging.version import Version
from scipy.special import softmax
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForCausalLM, __version__

import interp
from interp.editing.conditions import capture_edited
from interp.edits import ReplaceCoordinates
from interp.errors import ModelError, UsageError
from interp.families import REFUSED, family_of
from interp.family import QkNorm
from interp.hooks.attention import attention_function
from interp.loading.load import load
from interp.need import Need
from interp.reading.forward import capture, packs_for
from interp.reading.packs import each_alone, packed
from interp.self_check.selfcheck import check_model, run_checks
from tests.captures import assert_read_as_computed
from tests.quick import quick
from tests.tiny_models import FAMILIES, alike_prompts, prompts_of, tiny_model, wrap

_COMMON = {"vocab_size": 101, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 12,
           "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1,
           "eos_token_id": 2, "initializer_range": 0.2}  # fmt: skip

SLIDING = {"num_hidden_layers": 4, "sliding_window": 4}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
SMALL = {**EXPERTS, "moe_intermediate_size": 16}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
BY_N = {"n_embd": 48, "n_layer": 2, "n_head": 4}
CAPPED = {"attn_logit_softcapping": 5.0, "sliding_window": 4, "query_pre_attn_scalar": 8}
PLAIN = ("qwen2", "qwen3", "gemma", "olmo", "olmo2", "nanochat", "internlm3", "jais2", "ministral3", "starcoder2",
         "persimmon", "seed_oss", "arcee", "helium", "nemotron", "ernie4_5", "apertus", "glm", "glm4")  # fmt: skip
"""Kinds that need nothing but common sizes."""

CONFIGS = {kind: {} for kind in PLAIN} | {
    "mixtral": LOCAL,
    "gemma2": CAPPED,
    "gemma3_text": {"sliding_window": 4},
    "gpt_oss": {"sliding_window": 4, **LOCAL},
    "llama4_text": {
        "num_hidden_layers": 4, "attention_chunk_size": 4, "no_rope_layer_interval": 2, "intermediate_size_mlp": 64,
        "interleave_moe_layer_step": 2, "num_local_experts": 4,
    },
    "aria_text": {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    "cohere2_moe": {**SLIDING, **EXPERTS},
    "cwm": SLIDING,
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16},
    "exaone_moe": {**SLIDING, **SMALL},
    "flex_olmo": EXPERTS,
    "dots1": {**ROUTED, "n_shared_experts": 1},
    "glm4_moe": {**ROUTED, "use_qk_norm": True},
    "granitemoe": {**LOCAL, "residual_multiplier": 0.3},
    "granitemoeshared": {**LOCAL, "residual_multiplier": 0.3, "shared_intermediate_size": 32},
    "hy_v3": SMALL,
    "hyperclovax": {"residual_multiplier": 0.3, "use_post_norm": True},
    "mellum": {**SLIDING, **SMALL},
    "minimax_m2": LOCAL,
    "solar_open": ROUTED,
    "vaultgemma": CAPPED,
    "stablelm": {"qk_layernorm": True, "partial_rotary_factor": 0.5},
    "phi3": {"original_max_position_embeddings": 64, "max_position_embeddings": 64},
    "gpt2": BY_N,
    "granite": {"residual_multiplier": 0.3, "logits_scaling": 4.0, "attention_multiplier": 0.2},
    "ministral": {"sliding_window": 4},
    "phimoe": {"num_local_experts": 4},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layer_interval": 2},
    "olmo3": SLIDING,
    "olmoe": {**EXPERTS, "clip_qkv": 0.3},
    "qwen2_moe": {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32},
    "qwen3_moe": SMALL,
    "exaone4": SLIDING,
    "cohere": {"use_qk_norm": True},
    "cohere2": SLIDING,
    "gpt_bigcode": {**BY_N, "n_positions": 64},
    "gptj": {**BY_N, "n_positions": 64, "rotary_dim": 4, "initializer_range": 0.2},
    "gpt_neo": {
        "hidden_size": 48, "num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]],
        "window_size": 4, "max_position_embeddings": 64, "initializer_range": 0.2,
    },
    "bloom": {"hidden_size": 48, "n_layer": 2, "n_head": 4, "initializer_range": 0.2},
    "mpt": {"d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "initializer_range": 0.2},
    "falcon": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.2},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 48, "max_position_embeddings": 64},
}  # fmt: skip
FEW = ("llama", "gpt_neox", "gpt2", "gemma3_text", "gpt_oss", "cohere2_moe")
"""What `make test` reads of all kinds: their layouts, windows, sinks, experts, shared and parallel blocks."""


OWN_NAMES = ("gpt2", "gpt_bigcode", "gptj", "gpt_neo", "bloom", "mpt", "falcon")
"""Kinds whose configurations have names of their own for sizes."""

SINCE = {"internlm3": "5.23", "iquestcoder": "5.23"}
"""The version of transformers that brought a kind, where `pyproject.toml` allows older ones."""

OTHER_SHAPES = {
    "olmo": {"clip_qkv": 0.3},
    "gpt_bigcode": {"multi_query": False},
    "mpt": {"attn_config": {"clip_qkv": 0.3, "softmax_scale": 0.2}},
    "opt": {"_remove_final_layer_norm": True},
    "llama": {"max_position_embeddings": 256, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}},
    "phi3": {"max_position_embeddings": 256, "original_max_position_embeddings": 32, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0,
        "original_max_position_embeddings": 32, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}},
    "phimoe": {"rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32, "short_mscale": 1.2,
        "long_mscale": 1.3, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6}},
}  # fmt: skip
"""Shapes of some models of a family: clipped projections, a rope with an attention factor, no final norm."""

OPT_ENDS = {
    "no norm": {"_remove_final_layer_norm": True},
    "projected": {"word_embed_proj_dim": 30},
    "both": {"_remove_final_layer_norm": True, "word_embed_proj_dim": 60},
    "norm behind every block": {"do_layer_norm_before": False, "word_embed_proj_dim": 30},
}
"""What the residual stream of an OPT passes before the output head."""


def config_of(kind, **settings):
    if Version(__version__) < Version(SINCE.get(kind, "0")):
        pytest.skip(f"{kind} came with transformers {SINCE[kind]}")
    return AutoConfig.for_model(kind, **settings)


WITHOUT_GROUPS = ("opt", "persimmon")
"""Families whose config would keep a number of key and value heads that the model does not read."""


def tiny(kind, **changes):
    torch.manual_seed(0)
    own = {"vocab_size": 101} if kind in OWN_NAMES else dict(_COMMON)
    if kind in WITHOUT_GROUPS:
        del own["num_key_value_heads"], own["head_dim"]
    config = config_of(kind, **{**own, **CONFIGS.get(kind, {}), **changes})
    module = AutoModelForCausalLM.from_config(config, attn_implementation=family_of(config).kernel).eval()
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("sinks"):
                p.normal_()
    return wrap(module)


def read(model, ids, *sites, at="all"):
    """What a model has at these sites, one after the other, of a single prompt."""
    needs = [Need(site, at=at) for site in sites]
    got = capture(model, prompts_of(ids), [ids], needs)
    return [got[need] for need in needs]


SHAPES = [*((kind, {}) for kind in CONFIGS), *OTHER_SHAPES.items()]


@pytest.mark.parametrize(("kind", "changes"), SHAPES)
def test_a_further_family_or_another_shape_of_one_passes_the_self_check(kind, changes):
    for c in check_model(tiny(kind, **changes)):
        assert c.value <= c.bound / 10 or c.bound == 0, (c.name, c.value)


SITES = (
    Need("v"), Need("q", at="all"), Need("z"), Need("attn_out"), Need("mlp_out"), Need("resid", at="all"),
    Need("pattern_entropy"), Need("pattern_entropy_no_first"), Need("sink_mass", at="all"), Need("qk_cosine"),
    Need("lens_kl"), Need("outcome_log_prob"), Need("next_loss", at="followed"),
)  # fmt: skip
MAY_SEE_LESS = {
    "mistral", *(k for k, config in CONFIGS.items() if {"sliding_window", "attention_chunk_size"} & set(config)),
    "gpt_neo", "bloom", "mpt",  # the latter two count columns of a pass, and not positions
}  # fmt: skip
"""Families with layers that may see less than the whole of these prompts, which are then read one after the other."""


@pytest.mark.parametrize("kind", quick(FEW, [*FAMILIES, *CONFIGS]))
def test_prompts_that_begin_alike_are_read_together_as_they_are_read_alone(kind, monkeypatch):
    model, (prompts, ids) = tiny_model(kind) if kind in FAMILIES else tiny(kind), alike_prompts()
    if kind not in MAY_SEE_LESS:
        assert sum(map(len, packs_for(model, ids, SITES))) == sum(map(len, packed(ids, prefixes=True)))
    together = capture(model, prompts, ids, SITES, tokens_per_batch=40)
    monkeypatch.setattr("interp.reading.forward.packs_for", lambda model, ids, *others, **more: each_alone(ids))
    alone = capture(model, prompts, ids, SITES, tokens_per_batch=40)
    for need in SITES:
        for name, array in alone.reduced(need).items():
            read = together.reduced(need)[name]
            np.testing.assert_allclose(read, array, rtol=2e-4, atol=2e-5, err_msg=f"{need} {name}")
    np.testing.assert_allclose(together.rows["next_entropy_bits"], alone.rows["next_entropy_bits"], atol=1e-5)


@pytest.mark.parametrize("kind", quick([kind for kind in FEW if kind in CONFIGS], CONFIGS))
def test_what_is_captured_is_what_the_familys_own_eager_attention_computes(kind):
    assert_read_as_computed(tiny(kind), np.random.default_rng(0).integers(3, 101, 11))


def test_queries_of_llama_4_are_captured_as_attention_multiplies_them():
    """Normalised where they are rotated; elsewhere larger from the eighth token on: 1 + a · log(1 + floor(n / 8))."""
    model, ids = tiny("llama4_text", floor_scale=8, attn_scale=0.5), np.arange(3, 22)
    assert all(c.passed for c in run_checks(model))
    q, k, q_pre, k_pre = read(model, ids, "q", "k", "q_pre", "k_pre")
    temperature = 1 + 0.5 * np.log1p(np.floor(np.arange(1, 20) / 8))[:, None, None]
    for layer, attention in enumerate(model.family.attention_modules(model.module)):
        if attention.use_rope:
            for x, before in ((q[layer], q_pre[layer]), (k[layer], k_pre[layer])):
                np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 12**0.5, rtol=1e-3)
                planes = x.reshape(*x.shape[:-1], 6, 2) @ [1, 1j]
                turned = planes / (before.reshape(*x.shape[:-1], 6, 2) @ [1, 1j])
                theta = model.module.config.rope_parameters["rope_theta"]
                angle = np.arange(19)[:, None] * theta ** (-np.arange(6) / 6)
                np.testing.assert_allclose(
                    turned, np.broadcast_to(np.exp(1j * angle)[:, None], turned.shape), atol=1e-3
                )
        else:
            np.testing.assert_allclose(q[layer], q_pre[layer] * temperature, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(k[layer], k_pre[layer], rtol=1e-6)
    assert {attention.use_rope for attention in model.family.attention_modules(model.module)} == {0, 1}


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma2"])
def test_a_family_that_sdpa_computes_wrongly_is_loaded_with_eager_attention(tmp_path, kind, word_tokenizer):
    made, ids = tiny(kind), torch.arange(3, 14)[None]
    made.module.save_pretrained(tmp_path)
    model = load(str(tmp_path), tokenizer=word_tokenizer)
    assert model.info.attention_kernel == model.module.config._attn_implementation == "eager"
    with torch.inference_mode(), attention_function(made, "eager"):
        assert torch.equal(model.module(ids).logits, made.module(ids).logits)


LOGIT_FIELDS = {"logits_scaling": 3.0, "logit_scale": 0.3, "final_logit_softcapping": 0.7}
"""What families scale and cap logits by; others may hold the fields and never look at them."""


@pytest.mark.parametrize("kind", quick([*FEW, "gemma2", "granite"], [*FAMILIES, *CONFIGS]))
def test_logits_are_scaled_and_capped_as_transformers_does_and_nowhere_else(kind):
    model = tiny(kind, **LOGIT_FIELDS)
    head = next(c for c in run_checks(model) if c.name == "head")
    assert head.value <= head.bound / 10
    ids = np.arange(3, 10)
    got = capture(model, prompts_of(ids), [ids], [Need("lens_entropy")])
    np.testing.assert_allclose(got["lens_entropy"][-1], got.rows["next_entropy_bits"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("end", OPT_ENDS)
def test_an_opt_is_read_through_whatever_lies_before_its_head(end):
    model, (prompts, ids) = tiny("opt", **OPT_ENDS[end]), alike_prompts()
    assert all(c.value <= c.bound / 10 or c.bound == 0 for c in check_model(model))
    resid, lens, log_p = Need("resid"), Need("lens_log_prob"), Need("next_log_prob")
    got = capture(model, prompts, ids, [resid, lens, log_p])
    early = capture(model, prompts, ids, [resid], layers=[-1])
    np.testing.assert_allclose(early[resid][0], got[resid][-1], atol=1e-5)
    decoder, x = model.module.model.decoder, torch.from_numpy(got[resid])
    with torch.no_grad():
        x = x if decoder.final_layer_norm is None else decoder.final_layer_norm(x)
        x = x if decoder.project_out is None else decoder.project_out(x)
        by_hand = torch.log_softmax(model.module.lm_head(x), dim=-1) / np.log(2)
        expected = [model.module(torch.tensor(each)[None]).logits[0, -1].log_softmax(-1) / np.log(2) for each in ids]
    np.testing.assert_allclose(got[lens], by_hand, atol=2e-4)
    np.testing.assert_allclose(got[log_p], torch.stack(expected), atol=2e-4)
    last = ReplaceCoordinates(layer=model.info.n_layers, site="resid", axis=np.eye(48), values=np.linspace(-1, 1, 48))
    edited = capture_edited(model, prompts, ids, [log_p], [last])[log_p]
    np.testing.assert_allclose(edited, np.broadcast_to(edited[0], edited.shape), atol=1e-4)
    assert np.abs(edited - got[log_p]).max() > 0.1


@pytest.mark.parametrize("kind", ["llama", "phi3"])
def test_an_attention_factor_is_really_there_and_a_wrong_one_is_refused(kind):
    model = tiny(kind, **OTHER_SHAPES[kind])
    rotary = model.module.model.rotary_emb
    assert rotary.attention_scaling > 1.05
    true = rotary.forward
    rotary.forward = lambda *given, **named: tuple(1.01 * part for part in true(*given, **named))
    assert not next(c for c in run_checks(model) if c.name == "rotary").passed


@pytest.mark.parametrize("site", ["attn_out", "mlp_out", "attn_logit", "mlp_logit"])
def test_where_the_stream_is_normalised_behind_every_sum_nothing_adds_up_to_it(site):
    model, (prompts, ids) = tiny("opt", do_layer_norm_before=False), alike_prompts()
    with pytest.raises(UsageError, match="normalised again behind every sum"):
        capture(model, prompts, ids, [Need(site)])


@pytest.mark.parametrize("kind", REFUSED)
def test_a_family_that_cannot_be_read_is_refused_with_its_reason(kind):
    name, reason = REFUSED[kind]
    with pytest.raises(ModelError) as caught:
        family_of(AutoConfig.for_model(kind))
    assert name in str(caught.value) and reason in str(caught.value)


def test_cosines_of_queries_and_keys_are_read_in_float64():
    model, ids = tiny("qwen2"), np.arange(3, 14)
    single = read(model, ids, "qk_cosine")
    model.module.double()
    double = replace(model, info=replace(model.info, dtype="float64"))
    np.testing.assert_allclose(read(double, ids, "qk_cosine"), single, atol=1e-5)


@pytest.mark.parametrize("kind", ["nanochat", "qwen3", "gpt2"])
def test_the_last_depth_of_the_stream_is_what_the_last_block_leaves(kind):
    model, (prompts, ids) = tiny(kind), alike_prompts()
    needs = [Need(site, at="all") for site in ("resid", "attn_out", "mlp_out")]
    stream, attention, feed_forward = (capture(model, prompts, ids, needs)[need] for need in needs)
    assert stream.shape == (3, sum(map(len, ids)), 48)
    np.testing.assert_allclose(stream[1:], stream[:-1] + attention + feed_forward, rtol=1e-4, atol=1e-4)


def test_the_last_layer_is_read_alone_and_its_end_edited_where_the_final_norm_is_also_the_first():
    model, ids = tiny("nanochat"), [[3, 5, 7, 9], [4, 6, 8, 10, 12]]
    np.testing.assert_array_equal(
        interp.collect(model, ids, ["v"], layers=[-1])["v"][0], interp.collect(model, ids, ["v"])["v"][-1]
    )
    tokens, end = torch.tensor(ids[:1]), interp.RemoveAxis(site="resid", layer=model.info.n_layers, axis=np.ones(48))
    plain = model.module(tokens, output_hidden_states=True, use_cache=False).hidden_states
    with interp.applied(model, end):
        edited = model.module(tokens, output_hidden_states=True, use_cache=False).hidden_states
    assert [torch.equal(*each) for each in zip(plain, edited, strict=True)] == [True, True, False]


def test_values_that_are_zero_make_no_edit_that_moves_nothing():
    model = tiny("qwen2")
    with torch.no_grad():
        model.module.model.layers[1].self_attn.v_proj.weight.zero_()
        model.module.model.layers[1].self_attn.v_proj.bias.zero_()
    assert all(c.passed for c in run_checks(model))


def test_a_norm_read_in_the_wrong_order_is_caught():
    model = tiny("qwen3")
    wrong = replace(model.family, qk_norm=QkNorm("k_norm", "q_norm", "pos_head"))
    with torch.no_grad():
        for attention in model.family.attention_modules(model.module):
            attention.q_norm.weight.normal_()
    assert not all(c.passed for c in run_checks(replace(model, family=wrong)))


def test_another_package_adds_a_family_by_entry_point(tmp_path, monkeypatch):
    from interp import registry
    from interp.families import families

    (tmp_path / "their_family.py").write_text(
        "from interp.families import Family, Layout\n"
        "FAMILY = Family(name='iquestcoder', layers='model.layers', final_norm='model.norm', attention='self_attn',\n"
        "    mlp='mlp', layout=Layout('separate', ('q_proj', 'k_proj', 'v_proj')), out='o_proj')\n"
    )
    info = tmp_path / "their_family-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-family\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interp.families]\niquestcoder = their_family:FAMILY\n")
    config = config_of("iquestcoder", **_COMMON)
    with pytest.raises(ModelError, match=r"no entry for this family\n  Add it: a row") as raised:
        family_of(config)
    assert (
        raised.value.fix.endswith("`interp list families` shows all that can be read.") and len(raised.value.fix) < 200
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entries.cache_clear()
    families.cache_clear()
    try:
        torch.manual_seed(0)
        model = wrap(AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval())
        assert model.family.name == "iquestcoder"
        assert all(c.passed for c in check_model(model))
    finally:
        registry.entries.cache_clear()
        families.cache_clear()


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "phimoe", "gpt_oss", "granitemoe"])
def test_routers_are_captured_with_the_weights_that_the_family_uses(kind):
    sizes = {"num_local_experts": 4} if kind in ("mixtral", "phimoe", "gpt_oss", "granitemoe") else {"num_experts": 4}
    extra = {"num_experts_per_tok": 2, "norm_topk_prob": kind != "olmoe"}
    if kind.startswith("qwen"):
        extra |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
    model, ids = tiny(kind, **sizes, **extra), np.random.default_rng(1).integers(3, 101, 9)
    assert model.info.n_experts == 4
    log_p, weight = read(model, ids, "router_log_prob", "router_weight")
    heard = []
    routers = [attrgetter(model.family.router)(block) for block in model.family.layer_modules(model.module)]
    for router in routers:
        router.register_forward_pre_hook(lambda _, args: heard.append(args[0].view(len(ids), -1)))
    with torch.inference_mode():
        model.module(torch.from_numpy(ids)[None])
        own = [linear(x, r.weight, getattr(r, "bias", None)) for x, r in zip(heard, routers, strict=True)]
    np.testing.assert_allclose(np.exp2(log_p).sum(-1), 1, rtol=1e-5)
    assert ((weight > 0).sum(-1) == 2).all()
    for layer, logits in enumerate(own):
        p = softmax(logits.double().numpy(), axis=-1)
        np.testing.assert_allclose(np.exp2(log_p[layer]), p, atol=1e-6)
        if kind != "phimoe":  # which thins out the softmax before it weighs
            np.testing.assert_array_equal(np.argsort(p)[:, 2:].sum(-1), np.argsort(weight[layer])[:, 2:].sum(-1))
            kept = np.where(weight[layer] > 0, p, 0)
            expected = kept if kind == "olmoe" else kept / kept.sum(-1, keepdims=True)
            np.testing.assert_allclose(weight[layer], expected, atol=1e-6)


def test_a_model_without_experts_in_every_layer_has_no_router_to_read():
    for kind, extra, reason in (
        ("qwen2", {}, "no router of experts that is known to us"),
        ("qwen2_moe", {"num_experts": 4, "decoder_sparse_step": 2, "moe_intermediate_size": 16,
                       "shared_expert_intermediate_size": 16}, "no experts in every layer"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=reason):
            read(tiny(kind, **extra), np.array([3, 4, 5]), "router_weight")
