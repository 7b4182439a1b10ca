"""Families whose attention asks no interface are read as their own eager attention computes, in float64."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import interp
from interp.errors import ModelError
from interp.hooks.attention import Listener, listening
from interp.need import Need
from tests.captures import assert_read_as_computed
from tests.tiny_models import prompts_of

_SIZES = {"vocab_size": 101, "initializer_range": 0.2}
_FALCON = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, **_SIZES}
SHAPES = {
    "gptj": ("gptj", {"n_embd": 48, "n_layer": 3, "n_head": 4, "rotary_dim": 4, "n_positions": 64, **_SIZES}),
    "gpt_neo": ("gpt_neo", {"hidden_size": 48, "num_layers": 4, "num_heads": 4, "window_size": 4, **_SIZES,
                            "attention_types": [[["global", "local"], 2]], "max_position_embeddings": 64}),
    "bloom": ("bloom", {"hidden_size": 48, "n_layer": 3, "n_head": 4, **_SIZES}),
    "bloom, six heads": ("bloom", {"hidden_size": 48, "n_layer": 2, "n_head": 6, **_SIZES}),
    "mpt": ("mpt", {"d_model": 48, "n_layers": 3, "n_heads": 4, "max_seq_len": 64, **_SIZES}),
    "mpt, clipped": ("mpt", {"d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 64, **_SIZES,
                             "attn_config": {"clip_qkv": 0.3, "softmax_scale": 0.2}}),
    "falcon, one key": ("falcon", _FALCON),
    "falcon, grouped": ("falcon", {**_FALCON, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "falcon, one norm": ("falcon", {**_FALCON, "num_kv_heads": 2, "new_decoder_architecture": True,
                                    "num_ln_in_parallel_attn": 1}),
    "falcon, all keys": ("falcon", {**_FALCON, "multi_query": False, "parallel_attn": False, "bias": True}),
}  # fmt: skip
IDS = np.random.default_rng(0).integers(3, 101, 15)


@pytest.fixture(scope="module", params=SHAPES)
def module(request):
    kind, sizes = SHAPES[request.param]
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes), attn_implementation="eager")
    with torch.no_grad():
        for name, p in made.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.1)
    return made.double().eval()


def test_what_is_captured_is_what_the_module_itself_computes(module):
    model, z, entered = interp.load(module), Need("z", at="all"), {}
    got = interp.collect(model, prompts_of(IDS), z)[z]
    for layer, attention in enumerate(model.family.attention_modules(module)):
        projection = attention.get_submodule(model.family.out)
        projection.register_forward_pre_hook(lambda _, args, layer=layer: entered.__setitem__(layer, args[0][0]))
    assert_read_as_computed(model, IDS)
    for layer, own in entered.items():
        expected = own.unflatten(-1, (model.info.n_heads, -1)).numpy()
        np.testing.assert_allclose(got[layer], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_seen_as_the_module_sees_it(module, side):
    module = copy.deepcopy(module).float()  # in float64 what hides padding overflows in the softmax of BLOOM and MPT
    model, ids = interp.load(module, check=False), torch.from_numpy(np.stack([IDS, IDS[::-1]]))
    mask = torch.ones_like(ids)
    mask[1, slice(0, 5) if side == "left" else slice(10, 15)] = 0
    with torch.inference_mode():
        plain = module(ids, attention_mask=mask, use_cache=False).logits
        with listening(model, Listener()):
            heard = module(ids, attention_mask=mask, use_cache=False).logits
    np.testing.assert_allclose(heard[mask == 1], plain[mask == 1], rtol=1e-4, atol=1e-5)


def test_text_is_generated_from_a_cache_as_the_module_generates_it_and_an_edit_changes_it(module):
    model, ids = interp.load(module, check=False), torch.from_numpy(IDS)[None]
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None, "use_cache": True}
    plain = module.generate(ids, **settings)
    with listening(model, Listener()):
        assert torch.equal(module.generate(ids, **settings), plain)
    before = {name: set(vars(each)) for name, each in module.named_modules()}
    with interp.applied(model, interp.AttentionOff(layer=0)):
        assert not torch.equal(module.generate(ids, **settings), plain)
    assert torch.equal(module.generate(ids, **settings), plain)
    assert {name: set(vars(each)) for name, each in module.named_modules()} == before


@pytest.mark.parametrize(
    ("kind", "sizes", "reason"),
    [
        ("falcon", {**_FALCON, "alibi": True}, "eager adds ALiBi twice"),
        (
            "bloom",
            {"hidden_size": 48, "n_head": 4, "apply_residual_connection_post_layernorm": True},
            "normalised input",
        ),
    ],
)
def test_a_shape_that_cannot_be_read_is_refused_with_its_reason(kind, sizes, reason):
    with pytest.raises(ModelError, match=reason):
        interp.load(AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).eval())
