"""Our q, k, v, z and patterns against TransformerLens's cache on the same weights."""

import pytest
import torch

from interp.checking.transformer_lens import check_against_transformer_lens
from interp.errors import ModelError
from tests.tiny_models import FAMILIES, fresh_model, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
def test_captures_equal_transformer_lens_on_the_same_weights(family):
    checks = check_against_transformer_lens(tiny_model(family))
    assert {"q_pre", "k_pre", "v", "z", "pattern"} <= {c.name.removeprefix("transformer-lens ") for c in checks}
    for c in checks:
        assert c.value < 1e-5, (c.name, c.value)
        assert "in 3 layers" in c.meaning


def test_the_oracle_leaves_the_model_as_it_was():
    model = fresh_model("llama")
    ids = torch.arange(5)[None]
    with torch.inference_mode():
        before = model.module(ids).logits
        check_against_transformer_lens(model)
        assert torch.equal(model.module(ids).logits, before)
    assert model.module.config._attn_implementation == "sdpa"


def test_what_fails_inside_transformer_lens_is_told_as_such(monkeypatch):
    from transformer_lens.model_bridge import TransformerBridge

    def broken(*args, **kwargs):
        raise AssertionError("no adapter")

    monkeypatch.setattr(TransformerBridge, "boot_transformers", broken)
    with pytest.raises(ModelError, match=r"TransformerLens cannot read this model \(AssertionError: no adapter\)"):
        check_against_transformer_lens(tiny_model("llama"))
