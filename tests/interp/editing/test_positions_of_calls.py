"""Edits at positions of a text, wherever a call has them: padding on either side, a cache, generation."""

import numpy as np
import pytest
import torch

import interp
from interp.editing.call_positions import positions_of_call
from interp.edits import ShiftAxis
from interp.errors import PromptError, UsageError
from tests.tiny_models import FAMILIES, VOCAB, tiny_model

TEXTS = [torch.from_numpy(np.random.default_rng(i).integers(1, VOCAB, size=n)) for i, n in enumerate((7, 4, 5))]


def shift(model, at, layer=1):
    axis = np.random.default_rng(9).normal(size=model.info.d_model)
    return ShiftAxis(layer=layer, site="resid", axis=axis, deviations=1.0, score_sigma=3.0, at=at)


def alone(model, edit, text):
    """Logits of one text without padding, edited."""
    with torch.inference_mode(), interp.applied(model, edit):
        return model.module(input_ids=text[None], use_cache=False).logits[0]


def padded(side):
    width = max(map(len, TEXTS))
    ids, mask = torch.zeros(len(TEXTS), width, dtype=torch.long), torch.zeros(len(TEXTS), width, dtype=torch.long)
    for i, text in enumerate(TEXTS):
        there = slice(width - len(text), None) if side == "left" else slice(len(text))
        ids[i, there], mask[i, there] = text, 1
    return ids, mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("told_by", ["position_ids", "mask"])
def test_padding_moves_no_edit(family, side, told_by):
    """With rotary embedding attention sees differences of positions alone: a text is the same wherever it begins."""
    model = tiny_model(family)
    edit = shift(model, (0, 2))
    ids, mask = padded(side)
    numbers = (mask.cumsum(dim=1) - 1).masked_fill(mask == 0, 1)  # padding has the number 1
    given = {"position_ids": numbers} if told_by == "position_ids" else {}
    with torch.inference_mode(), interp.applied(model, edit):
        logits = model.module(input_ids=ids, attention_mask=mask, use_cache=False, **given).logits
    for i, text in enumerate(TEXTS):
        expected = alone(model, edit, text)
        torch.testing.assert_close(logits[i][mask[i] == 1], expected, rtol=1e-4, atol=1e-4)
        with torch.inference_mode():
            plain = model.module(input_ids=text[None], use_cache=False).logits[0]
        assert (expected - plain).abs().max() > 0.01, "the edit acts"


def test_what_a_call_does_not_tell_is_refused_in_three_parts():
    model = tiny_model("llama")
    ids, mask = padded("left")
    four = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    with interp.applied(model, shift(model, (2,))):
        with pytest.raises(UsageError, match="does not count the 7 tokens") as refused:
            model.module(input_ids=ids, attention_mask=four)
        assert refused.value.asked and refused.value.found and "position_ids" in refused.value.fix
        with pytest.raises(UsageError, match="a part of the model was called"):
            model.module.model(input_ids=ids, attention_mask=mask)
        with (
            pytest.raises(PromptError, match="text 2 of the pass has 4 tokens"),
            interp.applied(model, shift(model, (5,))),
        ):
            model.module(input_ids=ids, attention_mask=mask, use_cache=False)
        with pytest.raises(UsageError, match="a cache"):
            positions_of_call(model.module, (ids,), {"past_key_values": ((ids,),)})
    with interp.applied(model, shift(model, "all")):
        model.module.model(input_ids=ids, attention_mask=mask)


def test_positions_are_numbers_of_tokens():
    module = tiny_model("llama").module
    ids, mask = padded("left")
    number = positions_of_call(module, (ids,), {"attention_mask": mask}).number
    assert number.tolist() == [[*range(7)], [-1, -1, -1, 0, 1, 2, 3], [-1, -1, 0, 1, 2, 3, 4]]
    packed = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    assert positions_of_call(module, (ids,), {"position_ids": packed}).number.tolist() == packed.tolist() * 3
    embedded = positions_of_call(module, (), {"inputs_embeds": torch.zeros(2, 3, 48)})
    assert embedded.number.tolist() == [[0, 1, 2]] * 2 and embedded.is_whole
