"""Further families with tiny random weights: they pass the self-check, statistics included."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from interp.checking.selfcheck import check_model, run_checks
from interp.families import QkNorm
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.seam.attention import attention_function
from tests.tiny_models import wrap

_COMMON = {"vocab_size": 101, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 12,
           "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1,
           "eos_token_id": 2, "initializer_range": 0.2}  # fmt: skip

CONFIGS = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {},
    "qwen3": {},
    "gemma": {},
    "gemma2": {"attn_logit_softcapping": 5.0, "sliding_window": 4, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 4},
    "olmo": {},
    "olmo2": {},
    "starcoder2": {},
    "stablelm": {"qk_layernorm": True, "partial_rotary_factor": 0.5},
    "phi3": {"original_max_position_embeddings": 64, "max_position_embeddings": 64},
    "gpt2": {"n_embd": 48, "n_layer": 2, "n_head": 4},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 48, "max_position_embeddings": 64},
}


def tiny(kind):
    torch.manual_seed(0)
    own = {"vocab_size": 101} if kind == "gpt2" else dict(_COMMON)
    if kind == "opt":
        del own["num_key_value_heads"], own["head_dim"]
    config = AutoConfig.for_model(kind, **{**own, **CONFIGS[kind]})
    kernel = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
    return wrap(AutoModelForCausalLM.from_config(config, attn_implementation=kernel).eval())


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_further_family_passes_the_self_check(kind):
    for c in check_model(tiny(kind)):
        assert c.value <= c.bound / 10 or c.bound == 0, (c.name, c.value)


@pytest.mark.parametrize("kind", CONFIGS)
def test_pattern_entropy_equals_the_familys_own_eager_attention(kind):
    model = tiny(kind)
    ids = np.random.default_rng(0).integers(3, 101, 11)
    prompts = PromptSet("p", [Prompt(token_ids=tuple(ids.tolist()))])
    got = capture(model, prompts, [ids], [Need("pattern_entropy", at="all")])[Need("pattern_entropy", at="all")]
    with torch.inference_mode(), attention_function(model, "eager"):
        eager = model.module(torch.from_numpy(ids)[None], output_attentions=True).attentions
    for layer, a in enumerate(eager):
        a = a[0].double().numpy()
        entropy = -np.sum(a * np.log2(a, out=np.zeros_like(a), where=a > 0), axis=-1).T
        assert np.abs(got[layer] - entropy).max() < 5e-6


def test_a_norm_read_in_the_wrong_order_is_caught():
    from dataclasses import replace

    model = tiny("qwen3")
    wrong = replace(model.family, qk_norm=QkNorm("k_norm", "q_norm", "pos_head"))
    with torch.no_grad():
        for attention in model.family.attention_modules(model.module):
            attention.q_norm.weight.normal_()
    assert not all(c.passed for c in run_checks(replace(model, family=wrong)))


def test_another_package_adds_a_family_by_entry_point(tmp_path, monkeypatch):
    from interp import registry
    from interp.errors import ModelError
    from interp.families import families, family_of

    (tmp_path / "their_family.py").write_text(
        "from interp.families import Family, Layout\n"
        "FAMILY = Family(name='seed_oss', layers='model.layers', final_norm='model.norm', attention='self_attn',\n"
        "    mlp='mlp', layout=Layout('separate', ('q_proj', 'k_proj', 'v_proj')), out='o_proj')\n"
    )
    info = tmp_path / "their_family-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-family\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interp.families]\nseed_oss = their_family:FAMILY\n")
    config = AutoConfig.for_model("seed_oss", **_COMMON)
    with pytest.raises(ModelError, match="no entry for this family"):
        family_of(config)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entries.cache_clear()
    families.cache_clear()
    try:
        torch.manual_seed(0)
        model = wrap(AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval())
        assert model.family.name == "seed_oss"
        assert all(c.passed for c in check_model(model))
    finally:
        registry.entries.cache_clear()
        families.cache_clear()
