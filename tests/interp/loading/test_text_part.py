"""The text part of multimodal models is read as the whole model computes it of text alone."""

import json

import numpy as np
import pytest
import torch
import transformers as hf

import interp
from interp.errors import ModelError
from interp.options import RunOptions
from interp.running.meta_model import meta_model
from tests.captures import assert_read_as_computed
from tests.tiny_models import VOCAB
from tests.tiny_multimodal import IMAGE, MULTIMODAL, tiny_multimodal

TEXT = np.random.default_rng(0).integers(3, IMAGE - 2, 19)
WITH_IMAGE_TOKENS = np.where(np.arange(19) // 3 == 2, IMAGE, TEXT)
"""A span of tokens that stand for an image which is not there."""


@pytest.fixture(scope="module", params=MULTIMODAL)
def saved(request, tmp_path_factory, word_tokenizer):
    """A whole model in memory, and the folder it was saved to."""
    whole, folder = tiny_multimodal(request.param), tmp_path_factory.mktemp(request.param)
    whole.save_pretrained(folder)
    word_tokenizer.save_pretrained(folder)
    return whole, folder


def logits(module, ids):
    with torch.inference_mode():
        return module(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits


def test_the_text_part_of_a_folder_has_the_logits_of_the_whole_model_and_no_vision_weights(saved):
    whole, folder = saved
    model = interp.load(folder)
    assert torch.equal(logits(model.module, TEXT), logits(whole, TEXT))
    assert model.info.text_part_of == type(whole).__name__ in repr(model)
    assert model.info.vocab_size == VOCAB and all(check.passed for check in model.checks)
    weights = next(check for check in model.checks if check.name == "weights")
    assert "for which the text part has no place" in weights.detail
    model = interp.load(folder, check=False)
    sees = [name for name, _ in whole.named_parameters() if "vis" in name]
    assert sees and not {name for name, _ in model.module.named_parameters()} & set(sees)
    assert model.info.n_parameters == interp.load(whole, check=False).info.n_parameters
    assert model.info.n_parameters < sum(p.numel() for p in whole.parameters())
    assert meta_model(RunOptions(model=folder)).model.info.n_parameters == model.info.n_parameters


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(TEXT, id="text", marks=pytest.mark.slow),
        pytest.param(WITH_IMAGE_TOKENS, id="image tokens without an image"),
    ],
)
@pytest.mark.parametrize("kind", MULTIMODAL)
def test_what_is_captured_is_what_the_whole_model_computes_with_eager_attention(kind, ids):
    whole = tiny_multimodal(kind)
    whole = whole if kind == "qwen3_5" else whole.double()  # whose linear attention has no float64
    whole.config._experts_implementation = "eager"  # the fast one has no float64
    assert_read_as_computed(interp.load(whole), ids)


def test_an_edit_acts_on_the_whole_model_in_memory_and_leaves_it_as_it_was(saved):
    whole, _ = saved
    model, before = interp.load(whole, check=False), logits(whole, TEXT)
    with interp.applied(model, interp.AttentionOff(layer=model.info.layers_with_attention[0])):
        assert (logits(whole, TEXT) - before).abs().max() > 1e-3
    assert torch.equal(logits(whole, TEXT), before)


@pytest.mark.parametrize("kind", ["Blip2", "InstructBlip"])
def test_a_model_that_reads_no_text_without_an_image_is_refused(kind):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "model_type": "opt", "vocab_size": VOCAB, "ffn_dim": 16, "word_embed_proj_dim": 16}
    seen = {**sizes, "image_size": 28, "patch_size": 14}
    config = getattr(hf, f"{kind}Config")(
        text_config=text, vision_config=seen, qformer_config={**sizes, "encoder_hidden_size": 16}
    )
    with pytest.raises(ModelError, match=r"it cannot read a few tokens: .*pixel_values"):
        interp.load(getattr(hf, f"{kind}ForConditionalGeneration")(config).eval())


def test_layers_of_cross_attention_that_a_shorter_model_does_not_have_are_not_counted():
    whole = tiny_multimodal("mllama", cross_attention_layers=[1, 3, 8])
    assert interp.load(whole).info.n_layers == 3


def test_models_without_a_text_part_to_be_read_are_refused(tmp_path):
    with pytest.raises(ModelError, match="Gemma3Model"):
        interp.load(tiny_multimodal("gemma3").model)
    with pytest.raises(ModelError, match="its tokens attend to later ones"):
        interp.load(tiny_multimodal("paligemma"))
    tiny_multimodal("llava").config.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    content["text_config"]["num_hidden_layers"] = 10**8
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelError, match="num_hidden_layers: input should be less than"):
        interp.load(tmp_path)
