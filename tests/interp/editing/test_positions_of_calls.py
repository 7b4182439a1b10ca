"""Edits at positions of a text, wherever a call has them: as in a pass of the whole text alone, read afresh."""

import itertools
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, MambaConfig, MambaForCausalLM, StaticCache

import interp
from interp.editing.edited_rows import positions_of_call
from interp.errors import PromptError, UsageError
from interp.hooks.own_attention import cache_name
from interp.need import Need
from tests.interp.test_families import CONFIGS, FEW, tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, prompts_of, tiny_model, wrap

N_PROMPT, N_NEW = 9, 5
STATIC = ("llama", "mistral", "llama4_text")
AT = (1, N_PROMPT - 1, N_PROMPT + 1)


def model_of(kind):
    return tiny_model(kind) if kind in FAMILIES else tiny(kind)


def edit_of(model, site, at, layer=0):
    width = {"resid": model.info.d_model}.get(site, model.info.d_head)
    head = {} if site == "resid" else {"head": 0}
    axis = np.random.default_rng(3).normal(size=width)
    return interp.ShiftAxis(layer=layer, site=site, **head, axis=axis, deviations=3.0, score_sigma=2.0, at=at)


def ids_of(n=N_PROMPT, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(3, 101, (1, n)))


TEXTS = [ids_of(n, seed=i)[0] for i, n in enumerate((7, 4, 5))]


def padded(side, texts):
    ids = pad_sequence(texts, batch_first=True, padding_value=-1, padding_side=side)
    return ids.clamp(min=0), (ids >= 0).long()


def edits_of(model, sites, at):
    return [edit_of(model, site, at) for site in sites.split()] if at else []


def logits_of(model, ids, *edits):
    """Without a cache."""
    with torch.inference_mode(), interp.applied(model, *edits) if edits else nullcontext():
        return model.module(ids, use_cache=False).logits


def whole(model, ids, sites, at):
    """Logits of the last token, edited at those positions that the text has."""
    return logits_of(model, ids, *edits_of(model, sites, tuple(p for p in at if p < ids.shape[1])))[:, -1]


def assert_whole(model, logits, ids, sites, at):
    """`logits`, one a step, are those of the whole text so far; and the edit moved the last."""
    for step, found in enumerate(logits):
        so_far = ids[:, : ids.shape[1] - len(logits) + step]
        expected = whole(model, so_far, sites, at)
        assert (found - expected).abs().max() <= 2e-4 * expected.abs().max(), f"step {step}"
    plain = logits_of(model, so_far)[:, -1]
    assert (plain - expected).abs().max() > 1e-3 * plain.abs().max(), "the edit acts"


def generated(model, ids, *edits, **given):
    settings = {"attention_mask": torch.ones_like(ids), "eos_token_id": None, "pad_token_id": 0, "use_cache": True}
    settings |= given
    with interp.applied(model, *edits):
        return model.module.generate(
            ids, max_new_tokens=N_NEW, do_sample=False, output_logits=True, return_dict_in_generate=True, **settings
        )


@torch.inference_mode()
@pytest.mark.parametrize(
    ("kind", "cache", "at"),
    [
        *quick(
            *([(kind, "dynamic", AT) for kind in some if kind not in STATIC] for some in (FEW, [*FAMILIES, *CONFIGS]))
        ),
        *itertools.product(STATIC, ("dynamic", "static"), (AT, (N_PROMPT + 1, N_PROMPT + 2))),
    ],
)
def test_generation_is_edited_at_every_step_whatever_the_cache(kind, cache, at):
    if (kind, cache) == ("llama4_text", "static") and Version(transformers.__version__) < Version("5.21"):
        pytest.skip("transformers before 5.21 cannot mask chunks in a static cache")
    model = model_of(kind)
    out = generated(model, ids_of(), *edits_of(model, "k v", at), cache_implementation=cache)
    assert_whole(model, out.logits, out.sequences, "k v", at)


@torch.inference_mode()
@pytest.mark.parametrize("sites", ["k v", "q z resid"])
@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("made", [DynamicCache, StaticCache])
def test_a_text_in_chunks_is_edited_as_in_one_piece(kind, made, sites):
    model, at, ids = tiny_model(kind), (0, 3, 5, 9), ids_of(13)
    n = {"max_cache_len": 20} if made is StaticCache else {}
    cache, found = made(config=model.module.config, **n), []
    with interp.applied(model, *edits_of(model, sites, at)):
        for chunk in ids.split([1, 3, 4, 1, 1, 3], dim=1):
            given = {cache_name(model.module): cache}
            found.append(model.module(chunk, **given).logits)
    expected = logits_of(model, ids, *edits_of(model, sites, at))
    torch.testing.assert_close(torch.cat(found, dim=1), expected, rtol=2e-4, atol=2e-4)
    assert not torch.allclose(logits_of(model, ids), expected, atol=1e-2), "the edit acts"


@torch.inference_mode()
@pytest.mark.parametrize("given", [{"num_beams": 3}, {"prompt_lookup_num_tokens": 2}, {"prefill_chunk_size": 4}])
def test_ways_of_generating_that_reorder_crop_or_split_are_edited(given):
    model, ids, beams = tiny_model("llama"), ids_of(5).repeat(1, 2), {"num_beams": given.get("num_beams", 1)}
    edit = replace(edit_of(model, "v", tuple(range(9)), layer=(0, 1, 2)), dose=10.0)
    made = generated(model, ids, edit, **given).sequences
    assert made.tolist() == generated(model, ids, edit, use_cache=False, **beams).sequences.tolist()
    nothing = interp.ShiftAxis(layer=0, site="v", axis=np.eye(24)[0], deviations=0.0, score_sigma=0.0)
    assert made.tolist() != generated(model, ids, nothing, use_cache=False, **beams).sequences.tolist()


@torch.inference_mode()
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_padded_texts_beside_each_other_are_edited_at_their_own_positions(cache):
    model, at = tiny_model("mistral"), (1, 4, 8)
    ids, mask = padded("left", [ids_of(5, seed=1)[0], ids_of(8, seed=2)[0]])
    edit = edit_of(model, "v", at)
    out = generated(model, ids, edit, attention_mask=mask, cache_implementation=cache)
    for row, padding in ((0, 3), (1, 0)):
        logits = [each[row : row + 1] for each in out.logits]
        assert_whole(model, logits, out.sequences[row : row + 1, padding:], "v", at)


@torch.inference_mode()
def test_a_token_that_was_cached_before_the_edit_is_refused_and_later_ones_are_edited():
    model, ids = tiny_model("llama"), ids_of()
    for site, at in (("v", (2, 5)), ("resid", (2, 5)), ("v", (4, 7))):
        cache = {cache_name(model.module): DynamicCache(config=model.module.config)}
        model.module(ids[:, :4], **cache)
        told = pytest.raises(UsageError, match="before this edit") if 2 in at else nullcontext()
        with interp.applied(model, edit_of(model, site, at)), told:
            model.module(ids[:, 4:7], **cache)
            found = model.module(ids[:, 7:], **cache).logits[:, -1]
    torch.testing.assert_close(found, whole(model, ids, site, at), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_text_that_goes_on_may_be_edited_where_it_has_not_come_yet():
    model, ids = tiny_model("llama"), ids_of()
    with interp.applied(model, edit_of(model, "v", (1, 7))):
        with pytest.raises(PromptError, match="use_cache=True"):
            model.module(ids[:, :5])
        first = model.module(ids[:, :5], use_cache=True)
        given = {cache_name(model.module): getattr(first, cache_name(model.module))}
        found = model.module(ids[:, 5:], **given).logits[:, -1]
    torch.testing.assert_close(found, whole(model, ids, "v", (1, 7)), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_the_state_of_mamba_counts_the_tokens_that_were_given_to_it():
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=101, hidden_size=32, state_size=4, num_hidden_layers=2, initializer_range=0.5)
    model, at = wrap(MambaForCausalLM(config).eval()), (0, 2, N_PROMPT + 1)
    out = generated(model, ids_of(), edit_of(model, "resid", at))
    assert_whole(model, out.logits, out.sequences, "resid", at)
    state = model.module(ids_of(), use_cache=True).cache_params
    with interp.applied(model, edit_of(model, "resid", at)), pytest.raises(UsageError, match="how much it held"):
        model.module(ids_of()[:, :1], cache_params=state)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("told_by", ["position_ids", "mask"])
def test_padding_moves_no_edit(family, side, told_by):
    """With rotary embedding attention sees differences of positions alone: a text is the same wherever it begins."""
    model = tiny_model(family)
    edit = edit_of(model, "resid", (0, 2), layer=1)
    ids, mask = padded(side, TEXTS)
    numbers = (mask.cumsum(dim=1) - 1).masked_fill(mask == 0, 1)  # padding has the number 1
    given = {"position_ids": numbers} if told_by == "position_ids" else {}
    with torch.inference_mode(), interp.applied(model, edit):
        logits = model.module(input_ids=ids, attention_mask=mask, use_cache=False, **given).logits
    for i, text in enumerate(TEXTS):
        expected = logits_of(model, text[None], edit)[0]
        torch.testing.assert_close(logits[i][mask[i] == 1], expected, rtol=1e-4, atol=1e-4)
        assert (expected - logits_of(model, text[None])[0]).abs().max() > 0.01, "the edit acts"


def test_what_a_call_does_not_tell_is_refused_in_three_parts():
    model = tiny_model("llama")
    ids, mask = padded("left", TEXTS)
    four = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    with interp.applied(model, edit_of(model, "resid", (2,))):
        with pytest.raises(UsageError, match="does not count the 7 tokens") as refused:
            model.module(input_ids=ids, attention_mask=four)
        assert refused.value.asked and refused.value.found and "position_ids" in refused.value.fix
        with pytest.raises(UsageError, match="a part of the model was called"):
            model.module.model(input_ids=ids, attention_mask=mask)
        with (
            pytest.raises(PromptError, match="text 2 of the pass has 4 tokens"),
            interp.applied(model, edit_of(model, "resid", (5,))),
        ):
            model.module(input_ids=ids, attention_mask=mask, use_cache=False)
        with pytest.raises(UsageError, match="a cache"):
            positions_of_call(model.module, (ids,), {"past_key_values": ((ids,),)})
    with interp.applied(model, edit_of(model, "resid", "all")):
        model.module.model(input_ids=ids, attention_mask=mask)


def test_positions_are_numbers_of_tokens():
    module = tiny_model("llama").module
    ids, mask = padded("left", TEXTS)
    number = positions_of_call(module, (ids,), {"attention_mask": mask}).number
    assert number.tolist() == [[*range(7)], [-1, -1, -1, 0, 1, 2, 3], [-1, -1, 0, 1, 2, 3, 4]]
    packed = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    assert positions_of_call(module, (ids,), {"position_ids": packed}).number.tolist() == packed.tolist() * 3
    embedded = positions_of_call(module, (), {"inputs_embeds": torch.zeros(2, 3, 48)})
    assert embedded.number.tolist() == [[0, 1, 2]] * 2 and embedded.is_whole


@pytest.mark.parametrize("kind", quick(FEW, [*FAMILIES, *CONFIGS]))
def test_parts_that_are_switched_off_are_those_that_collect_switches_off(kind):
    """Also where a part returns batch and position in one row."""
    model, ids = model_of(kind), torch.cat([ids_of(6), ids_of(6, seed=1)])
    prompts = prompts_of(*ids, scored=tuple(range(6)))
    for part in (interp.FeedForwardOff, interp.AttentionOff, interp.BypassLayer):
        for at in ("all", (1, 4)):
            edit = part(layer=-1, at=at)
            expected = interp.collect(model, prompts, "next_log_prob", edits=[edit])[Need("next_log_prob")]
            found = torch.log_softmax(logits_of(model, ids, edit), dim=-1).flatten(0, 1) / np.log(2)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{edit} at {at}")
