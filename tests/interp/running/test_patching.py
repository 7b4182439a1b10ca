"""Activation patching and logit attribution: each against a second formula, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.errors import PromptError, UnknownName, UsageError
from tests.interp.test_families import OPT_ENDS, tiny
from tests.tiny_models import prompts_of, tiny_model

LN2 = np.log(2)


@pytest.fixture(scope="module")
def pair(tunnel):
    return tuple(list(p.token_ids)[:7] for p in interp.sampled_prompts(tunnel.task, 2))


@pytest.fixture(scope="module")
def found(tunnel, pair):
    return interp.patching_map(tunnel, *pair, n_null=4)


def logits(model, ids):
    with torch.no_grad():
        return model.module(torch.tensor([ids])).logits[0, -1].double()


def odds(model, found_logits, found):
    return float(found_logits[int(found.answer)] - found_logits[int(found.wrong)]) / LN2


def test_each_patch_copies_the_clean_activation_between_the_two_prompts(tunnel, pair, found):
    assert found.clean == pytest.approx(odds(tunnel, logits(tunnel, pair[0]), found), abs=1e-4)
    assert found.corrupted == pytest.approx(odds(tunnel, logits(tunnel, pair[1]), found), abs=1e-4)
    assert found.recovered[-1, -1] == pytest.approx(1, abs=1e-5)
    # Brute force: hidden states of transformers, put in by plain hooks of torch on every block.
    clean, corrupted = pair
    with torch.no_grad():
        kept = tunnel.module(torch.tensor([clean]), output_hidden_states=True).hidden_states
    for layer, block in enumerate(tunnel.family.layer_modules(tunnel.module)):
        for at in range(len(clean)):

            def copied(m, args, kwargs, layer=layer, at=at):
                x = (args[0] if args else kwargs["hidden_states"]).clone()
                x[:, at] = kept[layer][:, at]
                return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

            handle = block.register_forward_pre_hook(copied, with_kwargs=True)
            patched = logits(tunnel, corrupted)
            handle.remove()
            assert found.effect[layer, at] == pytest.approx(odds(tunnel, patched, found), abs=1e-4)


@pytest.mark.parametrize("site", ["resid", "z", "v"])
def test_the_map_of_an_edited_model_names_the_edit_and_its_patches_act_as_in_one_list(tunnel, pair, site):
    outer = interp.BypassLayer(1)
    with interp.applied(tunnel, outer):
        found = interp.patching_map(tunnel, *pair, site=site, n_null=0)
    assert found.model == f"{tunnel.name} edited: {outer}"
    for i, layer in enumerate(found.layers):
        for j, at in enumerate(found.positions):
            with interp.applied(tunnel, outer, *found.edits(layer, [at])):
                assert found.effect[i, j] == pytest.approx(odds(tunnel, logits(tunnel, pair[1]), found), abs=1e-4)


@pytest.mark.parametrize("site", ["resid", "z", "v"])
def test_all_positions_of_one_layers_residual_stream_give_the_clean_logits(tunnel, pair, site):
    found = interp.patching_map(tunnel, *pair, site=site, n_null=0)
    assert np.isnan(found.p).all(), "nothing was compared"
    for layer in found.layers:
        with interp.applied(tunnel, *found.edits(layer)):
            patched = logits(tunnel, pair[1])
        distance = float((patched - logits(tunnel, pair[0])).abs().max())
        assert (distance < 1e-4) == (site == "resid")


def test_patches_have_random_moves_as_long_and_make_a_table_and_a_figure(found):
    largest = np.abs(found.null_recovered).reshape(len(found.null), -1).max(axis=1)
    by_hand = (1 + (np.abs(found.recovered)[..., None] <= largest).sum(axis=-1)) / (1 + len(largest))
    np.testing.assert_array_equal(found.p, by_hand)
    assert found.recovered.min() < 0 and found.p.min() >= 1 / 5
    same = ~found.moves.any(axis=-1)
    assert same.any() and np.all(found.recovered[same] == 0) and np.all(found.null_recovered[:, same] == 0)
    frame = found.to_frame()
    assert len(frame) == found.effect.size and (frame.null_low <= frame.null_high).all()
    heat = found.plot().data[0]
    assert np.asarray(heat.z, dtype=float).shape == found.recovered.shape


def test_prompts_that_cannot_be_patched_are_refused_in_words(tunnel, pair):
    first, second = pair
    with pytest.raises(PromptError, match=r"7 tokens .* 6"):
        interp.patching_map(tunnel, first, second[:6])
    with pytest.raises(PromptError, match=r"after both|the same odds"):
        interp.patching_map(tunnel, first, first)
    with pytest.raises(UnknownName, match="pattern"):
        interp.patching_map(tunnel, first, second, site="pattern")
    with pytest.raises(UsageError, match="depths 0 to 3"):
        interp.patching_map(tunnel, first, second, layers=[4])
    with pytest.raises(UsageError, match="one token"):
        interp.patching_map(tunnel, first, second, answer=3, wrong=3)
    with pytest.raises(PromptError, match="no tokenizer"):
        interp.patching_map(tunnel, first, second, answer=" Paris")
    with pytest.raises(PromptError, match="0 to"):
        interp.patching_map(tunnel, first, second, answer=10**6, wrong=1)


ODD = {"gpt2": {"n_embd": 45, "n_head": 3}, "qwen2": {"hidden_size": 45}, "cohere": {"hidden_size": 47}}
"""Widths of the stream that are odd, under layer norm and RMS norm."""


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in ("gpt_neox", "phi", "qwen2", "gpt2", "opt", "granite", "cohere")),
        *ODD.items(),
        *(("opt", end) for end in OPT_ENDS.values() if "do_layer_norm_before" not in end),
    ],
)
def test_heads_and_the_rest_add_up_to_the_difference_of_logits(family, changes):
    model = tiny_model(family) if family in ("gpt_neox", "phi") else tiny(family, **changes)
    rng = np.random.default_rng(0)
    if changes:
        with torch.no_grad():  # gains and shifts of all norms unlike one another
            for weight in model.module.parameters():
                if weight.ndim == 1:
                    weight.add_(torch.from_numpy(0.3 * rng.normal(size=len(weight))))
    prompts = interp.PromptSet("made", [
        interp.Prompt(token_ids=tuple(rng.integers(3, 50, size=n).tolist()), scored=(n - 1,)) for n in (5, 8)
    ])  # fmt: skip
    found = interp.logit_attribution(model, prompts, answer=7, wrong=[9, 11], n_null=3)
    for i, (prompt, other) in enumerate(zip(prompts, (9, 11), strict=True)):
        own = logits(model, prompt.token_ids)
        assert found.total[i] == pytest.approx(float(own[7] - own[other]), abs=2e-4)
    above = interp.logit_attribution(model, prompts, answer=7, n_null=0)
    own = logits(model, prompts.prompts[0].token_ids)
    assert above.total[0] == pytest.approx(float(own[7] - own.mean()), abs=2e-4)
    assert len(found.to_frame()) == model.info.n_layers * model.info.n_heads
    mixed = replace(found, mixer=found.mixer + 0.5)  # these families have no mixer: it counts where there is one
    assert mixed.total == pytest.approx(found.total + 0.5 * model.info.n_layers)


def test_a_heads_share_is_what_the_logits_lose_when_the_norm_is_held(tunnel):
    """A second formula: centred, over the scale, times the gain, and the rows of the output head."""
    prompts = interp.sampled_prompts(tunnel.task, 2)
    found = interp.logit_attribution(tunnel, prompts, answer=13, wrong=11, n_null=0)
    layer, head = 1, 2
    capture = interp.collect(tunnel, prompts, ["z", "W_O", "resid"])
    added = np.einsum("rd,dm->rm", capture["z"][layer, :, head], capture["W_O"][layer, head]).astype(float)
    norm = tunnel.module.gpt_neox.final_layer_norm
    gain, x = norm.weight.detach().double().numpy(), capture["resid"][-1].astype(float)
    scale = np.sqrt(x.var(axis=1) + norm.eps)
    W = tunnel.module.get_output_embeddings().weight.detach().double().numpy()
    by_hand = ((added - added.mean(axis=1, keepdims=True)) / scale[:, None] * gain) @ (W[13] - W[11])
    own = np.array([[r, layer, head] for r in range(len(by_hand))]).T
    np.testing.assert_allclose(found.heads[tuple(own)], by_hand, atol=1e-5)


def test_parts_add_up_under_applied_edits_or_are_refused(tunnel):
    prompts, axis = interp.sampled_prompts(tunnel.task, 2), np.eye(64)[3]
    taken = [
        interp.AblateHeads(0, (1,), by="zero"), interp.FeedForwardOff(1), interp.RemoveAxis(0, site="resid", axis=axis),
    ]  # fmt: skip
    for edit in taken:
        with interp.applied(tunnel, edit):
            found = interp.logit_attribution(tunnel, prompts, answer=13, wrong=11, n_null=0)
            with torch.no_grad():
                each = [tunnel.module(torch.tensor([p.token_ids])).logits[0, list(p.scored)] for p in prompts]
        own = torch.cat(each).double().numpy()
        np.testing.assert_allclose(found.total, own[:, 13] - own[:, 11], atol=1e-4)
        assert found.model == f"{tunnel.name} edited: {edit}"
    for edit in (interp.RemoveAxis(3, site="resid", axis=axis), interp.BypassLayer(1), interp.AttentionOff(0)):
        with interp.applied(tunnel, edit), pytest.raises(UsageError, match="not the sum of what heads and blocks"):
            interp.logit_attribution(tunnel, prompts, n_null=0)


def test_what_cannot_be_attributed_or_averaged_is_refused(tunnel):
    with pytest.raises(UsageError, match="normalises the attention output"):
        interp.logit_attribution(tiny("gemma2"), ["x"], answer=5)
    with pytest.raises(UsageError, match="normalises the attention output"):
        interp.logit_attribution(tiny("hyperclovax"), prompts_of([5, 6]), answer=5)
    with pytest.raises(PromptError, match="rows"):
        interp.logit_attribution(tunnel, interp.sampled_prompts(tunnel.task, 2), answer=[1, 2, 3])
    with pytest.raises(UsageError, match="in row 1 they are one token"):
        interp.logit_attribution(tiny("gpt2"), prompts_of([5, 6], [7, 8]), answer=[4, 5], wrong=5)
    prompts = interp.sampled_prompts(tunnel.task, 3)
    ablated = interp.AblateHeads(layer=0, heads=0, by="mean", at="scored")
    means = interp.with_means(tunnel, prompts, ablated)
    with pytest.raises(UsageError, match="prompts of the forward passes"), interp.applied(tunnel, *means):
        pass
    with pytest.raises(PromptError, match="the prompt has"):
        interp.with_means(tunnel, [[1, 2, 3], [1, 2]], interp.AblateHeads(layer=0, heads=0, by="mean", at=(2,)))
    with (
        pytest.raises(UsageError, match="with_means"),
        interp.applied(tunnel, interp.AblateHeads(layer=0, heads=0, by="mean")),
    ):
        pass


def test_means_weigh_every_position_alike(tiny_text_model):
    texts = ["one", "two three four", "five six"]
    edit = interp.AblateHeads(layer=1, heads=(0, 2), by="mean", at="all")
    (filled,) = interp.with_means(tiny_text_model, texts, edit)
    z = interp.collect(tiny_text_model, texts, [interp.Need("z", at="all")])["z"]
    np.testing.assert_allclose(filled.mean, z[1].astype(float).mean(axis=0)[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("at", ["all", (0, 2)])
def test_means_over_named_prompts_are_those_that_collect_ablates_by(tunnel, at):
    prompts = interp.sampled_prompts(tunnel.task, 6)
    edit = interp.AblateHeads(layer=(0, 2), heads=(1, 3), by="mean", at=at)
    expected = interp.collect(tunnel, prompts, ["next_log_prob"], edits=[edit])
    last = expected.rows["prompt"] == 0
    with torch.no_grad(), interp.applied(tunnel, *interp.with_means(tunnel, prompts, edit)):
        ids = torch.tensor([prompts.prompts[0].token_ids])
        mine = tunnel.module(ids).logits[0].double().log_softmax(-1).numpy() / LN2
    positions = expected.rows["position"][last]
    np.testing.assert_allclose(mine[positions], expected["next_log_prob"][last], atol=1e-4)


@pytest.mark.parametrize(("kind", "changes"), [("bloom", {}), ("hyperclovax", {"use_post_norm": False})])
def test_heads_have_shares_wherever_nothing_lies_behind_their_output_projection(kind, changes):
    model, ids = tiny(kind, **changes), [5, 9, 31, 7, 64]
    found = interp.logit_attribution(model, prompts_of(ids), answer=7, n_null=0)
    of_all = logits(model, ids).numpy()
    np.testing.assert_allclose(found.total, of_all[7] - of_all.mean(), rtol=1e-5, atol=1e-5)
    assert np.abs(found.heads).min() > 0
