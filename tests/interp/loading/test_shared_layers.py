"""Layers that have a module in common are refused before anything is touched; those that share weights are read."""

import copy
from operator import attrgetter

import pytest
import torch

import interp
from interp.errors import ModelError
from tests.tiny_models import fresh_model

SHARED = {"": "the whole layer", "self_attn": "self_attn", "mlp": "mlp", "self_attn.v_proj": "self_attn.v_proj"}


def share(module, name):
    """The last layer takes the first one's part of this name, or that layer itself."""
    layers = module.model.layers
    if not name:
        layers[2] = layers[0]
        return
    owner, _, part = name.rpartition(".")
    setattr(attrgetter(owner)(layers[2]) if owner else layers[2], part, attrgetter(name)(layers[0]))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_a_module_of_two_layers_is_refused_and_the_model_left_as_it_was(name, check):
    module = fresh_model("llama").module
    share(module, name)
    before, ids = module.config._attn_implementation, torch.arange(7)[None]
    with torch.inference_mode():
        plain = module(ids).logits
        with pytest.raises(ModelError, match=rf"layers 0 and 2 share one module \({SHARED[name]}, ") as refused:
            interp.load(module, check=check)
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
