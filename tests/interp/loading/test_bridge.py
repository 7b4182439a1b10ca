"""A TransformerLens bridge handed over as a model."""

import copy
import warnings

import pytest
import torch

import interp
from interp.errors import ModelError
from interp.need import Need
from interp.reading.forward import capture
from interp.reductions import Rows
from interp.self_check.witnesses import any_tokenizer
from tests.interp.hooks.test_attention import relative, token_prompts
from tests.tiny_models import FAMILIES, tiny_model


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
