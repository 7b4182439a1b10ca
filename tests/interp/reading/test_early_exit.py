"""A pass goes as deep as somebody reads, and no block more: blocks are counted."""

from collections import Counter

import numpy as np
import pytest

import interp
from interp.editing.conditions import Run, capture_edited, read_conditions
from interp.edits import RemoveAxis
from interp.errors import UsageError
from interp.need import Need
from interp.probe import Condition
from interp.reading.forward import capture
from interp.reductions import PromptMean
from tests.interp.system.test_processes import sequences
from tests.tiny_models import FAMILIES, fresh_model, n_hooks


def counted(model) -> Counter:
    """Counts how often the attention of each layer and the output head are computed."""
    calls: Counter = Counter()
    for n, attention in enumerate(model.family.attention_modules(model.module)):
        attention.register_forward_hook(lambda *_, n=n: calls.update([n]))
    model.module.get_output_embeddings().register_forward_hook(lambda *_: calls.update(["head"]))
    return calls


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_ends_behind_the_last_layer_that_is_read(family):
    model = fresh_model(family)
    prompts, ids = sequences(5)
    calls = counted(model)
    before = n_hooks(model.module)
    whole = capture(model, prompts, ids, [Need("v"), Need("pattern_entropy", at="all"), Need("resid")])
    assert calls == {0: 1, 1: 1, 2: 1, "head": 1}
    calls.clear()
    some = capture(model, prompts, ids, [Need("v"), Need("pattern_entropy", at="all")], layers=[1, 0])
    assert calls == {0: 1, 1: 1}
    assert n_hooks(model.module) == before
    np.testing.assert_array_equal(some[Need("v")], whole[Need("v")][[1, 0]])
    need = Need("pattern_entropy", at="all")
    np.testing.assert_allclose(some[need], whole[need][[1, 0]], rtol=1e-6)
    assert some.layers == (1, 0) and whole.layers is None
    assert "next_entropy_bits" not in some.rows and "next_entropy_bits" in whole.rows
    assert some.drawn[Need("v")].shape == some[Need("v")].shape
    again = capture(model, prompts, ids, [Need("v"), need, Need("resid")])
    np.testing.assert_array_equal(again.rows["next_entropy_bits"], whole.rows["next_entropy_bits"])


@pytest.mark.parametrize(
    "site, layer, blocks",
    [("resid", 0, 0), ("resid", 1, 1), ("resid", -1, 3), ("attn_out", 1, 2), ("mlp_out", -1, 3), ("q_pre", 0, 1),
     ("W_V", 1, 0)],
)  # fmt: skip
def test_every_site_is_had_at_its_own_depth(site, layer, blocks):
    model = fresh_model("llama")
    prompts, ids = sequences(5)
    whole = capture(model, prompts, ids, [Need(site)])[Need(site)]
    calls = counted(model)
    some = capture(model, prompts, ids, [Need(site)], layers=[layer])
    assert sum(calls.values()) == blocks
    np.testing.assert_array_equal(some[Need(site)], whole[[layer]])


@pytest.mark.parametrize("site, at", [("next_log_prob", "scored"), ("lens_kl", "scored"), ("next_loss", "followed")])
def test_outputs_need_the_whole_pass(site, at):
    model = fresh_model("llama")
    prompts, ids = sequences(5)
    calls = counted(model)
    need = Need(site, at=at)
    whole = capture(model, prompts, ids, [need, Need("v")])
    calls.clear()
    some = capture(model, prompts, ids, [need, Need("v")], layers=[1])
    assert calls == {0: 1, 1: 1, 2: 1, "head": 1}
    np.testing.assert_array_equal(some.rows["next_entropy_bits"], whole.rows["next_entropy_bits"])
    expected = whole[need] if need.described.layers == "once" else whole[need][[1]]
    np.testing.assert_allclose(some[need], expected, rtol=1e-5, atol=1e-5)


def test_layers_are_refused_where_there_are_none(tiny_text_model):
    texts = ["one two", "three four five"]
    for wrong in ([3], [-4], [1, 1], []):
        with pytest.raises(UsageError, match="has the layers 0 to 2"):
            interp.collect(tiny_text_model, texts, ["v"], layers=wrong)
    with pytest.raises(UsageError, match="depths 0 to 3"):
        interp.collect(tiny_text_model, texts, ["resid"], layers=[4])


def test_the_null_of_other_prompts_keys_survives_an_early_end():
    model = fresh_model("mistral")
    prompts, ids = sequences(7)
    need = Need("pattern_entropy_null", at="all")
    whole = capture(model, prompts, ids, [need], tokens_per_batch=20)[need]
    some = capture(model, prompts, ids, [need], tokens_per_batch=20, layers=[1])[need]
    np.testing.assert_allclose(some, whole[[1]], rtol=1e-6)


def test_conditions_that_read_early_end_early():
    model = fresh_model("llama")
    prompts, ids = sequences(5)
    axis = np.random.default_rng(0).normal(size=48)
    mean = Need("resid", PromptMean(), "all")
    edit = RemoveAxis(layer=1, axis=axis, site="resid")

    def read(under):
        return {"v": under[Need("v")][1]}

    truth = capture_edited(model, prompts, ids, [Need("v"), mean], [edit])
    calls = counted(model)
    condition = Condition("early", (edit,), (Need("v"),), read)
    found = read_conditions(model, Run(prompts, ids), [condition], layers=[0, 1])["early"]
    assert calls == {0: 1, 1: 2}  # both once without the edit; then from the edited layer on
    np.testing.assert_allclose(found["v"], truth[Need("v")][1], rtol=1e-5, atol=1e-6)
    calls.clear()
    sized = Condition("sized", (RemoveAxis(layer=2, axis=axis, site="resid"),), (Need("v"), Need("edit_size")), read)
    read_conditions(model, Run(prompts, ids), [sized], layers=[0, 1])
    assert calls[2] == 1 and calls["head"] == 0, "the size of an edit is known where it is made"


def test_an_edited_capture_has_entropies_unless_layers_are_named():
    model = fresh_model("llama")
    prompts, ids = sequences(5)
    edit = RemoveAxis(layer=1, axis=np.ones(48), site="resid")
    assert "next_entropy_bits" in capture_edited(model, prompts, ids, [Need("v")], [edit]).rows
    some = capture_edited(model, prompts, ids, [Need("v")], [edit], layers=[2])
    assert "next_entropy_bits" not in some.rows and len(some[Need("v")]) == 1
