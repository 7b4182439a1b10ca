"""Our q, k, v, z and patterns against TransformerLens's cache on the same weights."""

import pytest
import torch

from interp.checking.transformer_lens import check_against_transformer_lens
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
