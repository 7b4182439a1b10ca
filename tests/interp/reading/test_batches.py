"""In which batches prompts pass: every prompt once, within the tokens allowed, and hardly any padding."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.errors import PromptError
from interp.need import Need
from interp.reading.batches import RowIndex, batches_of, cut, row_index
from interp.reading.forward import capture, packs_for
from interp.reading.packs import packed
from interp.running.passes import TokenisedSet
from tests.tiny_models import alike_prompts, fresh_model, prompts_of, shapes_of_passes, tiny_model

RNG = np.random.default_rng(0)
LENGTHS = {
    "five lengths": np.repeat([34, 2, 6, 18, 10], 350),
    "short and long": RNG.integers(2, 2000, 300),
    "mostly short": RNG.geometric(0.05, 3000),
    "equal": np.full(100, 32),
    "one": np.array([5]),
    "none": np.array([], dtype=np.int64),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_every_prompt_passes_once_in_batches_of_the_size_allowed_and_a_twentieth_is_padding_at_most(name):
    lengths = LENGTHS[name]
    batches = cut(lengths, 2048)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) * lengths[batch[0]] <= 2048 or len(batch) == 1 for batch in batches)
    assert all((np.diff(lengths[np.concatenate(batches)]) <= 0).all() for batch in batches)
    if len(lengths) > 200:
        assert lengths.sum() > 0.95 * sum(len(batch) * lengths[batch[0]] for batch in batches)
        assert len(batches) <= 2 * lengths.sum() / 2048


def test_batches_go_on_with_shorter_prompts_and_trees_of_tokens():
    assert [len(batch) for batch in cut(np.array([2, 3, 40]), 2048)] == [3]
    assert [len(batch) for batch in cut(np.repeat([10, 40], [100, 10]), 2048)] == [10, 100]
    (tree, other) = packed(SEQUENCES, prefixes=True)
    assert sorted(tree.prompts.tolist()) == [0, 1, 2, 3, 4] and other.prompts.tolist() == [5]
    assert tree.ids.tolist() == [1, 2, 3] and tree.is_plain  # [1, 2] lies within [1, 2, 3]


SEQUENCES = [np.array(each) for each in ([1, 2, 3], [1, 2], [1, 2, 3], [1, 2, 3], [1, 2], [4, 2, 3])]


def test_a_batch_holds_prompts_of_the_same_tokens_once_and_the_rows_of_all():
    batch = batches_of(packed(SEQUENCES, prefixes=False), 64, tiny_model("llama"))[0]
    assert batch.ids.tolist() == [[1, 2, 3], [4, 2, 3], [1, 2, 0]]
    assert batch.prompts.tolist() == [0, 2, 3, 5, 1, 4] and not batch.layout
    index = RowIndex(np.repeat(np.arange(6), 2), np.tile([0, 1], 6))
    rows = batch.rows(index)
    assert rows.prompt.tolist() == np.repeat([0, 2, 3, 5, 1, 4], 2).tolist()
    read = batch.ids[rows.item, rows.position].tolist()
    assert read == [SEQUENCES[prompt][at] for prompt, at in zip(rows.prompt, index.position[rows.row], strict=True)]
    first, second = batch.halves()
    assert (first.prompts.tolist(), second.prompts.tolist()) == ([0, 2, 3, 5], [1, 4])
    assert (first.ids.tolist(), second.ids.tolist()) == ([[1, 2, 3], [4, 2, 3]], [[1, 2]])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=25),
    st.booleans(),
)
def test_in_a_tree_each_token_sees_what_it_would_see_in_its_prompt(prompts, prefixes):
    ids = [np.array(each) for each in prompts]
    packs = packed(ids, prefixes=prefixes)
    assert sorted(int(p) for pack in packs for p in pack.prompts) == list(range(len(ids)))
    for pack in packs:
        for prompt, places in zip(pack.prompts, pack.places, strict=True):
            assert pack.ids[places].tolist() == ids[prompt].tolist()
            assert pack.position[places].tolist() == list(range(len(places)))
            for n, place in enumerate(places):
                assert np.flatnonzero(pack.visible[place]).tolist() == sorted(places[: n + 1].tolist())
    laid = sum(map(len, packs))
    assert laid <= sum(len(each) for each in {tuple(each) for each in prompts})
    batch = batches_of(packs, 10_000, tiny_model("llama"))[0]
    index = RowIndex(
        np.repeat(np.arange(len(ids)), [len(x) for x in ids]), np.concatenate([np.arange(len(x)) for x in ids])
    )
    rows = batch.rows(index)
    expected = [ids[prompt][at] for prompt, at in zip(rows.prompt, index.position[rows.row], strict=True)]
    assert batch.ids[rows.item, rows.position].tolist() == expected
    slots = batch.ids.gather(1, rows.padded.expand(len(batch.ids), -1))
    assert slots[rows.item, rows.slot].tolist() == expected


def test_a_model_that_does_not_take_the_layout_reads_prompts_in_order(monkeypatch):
    model, (_, ids) = fresh_model("llama"), alike_prompts()
    assert any(not pack.is_plain for pack in packs_for(model, ids, [Need("v")]))
    forward = model.module.forward

    def deaf(*args, attention_mask=None, **keywords):
        return forward(*args, **keywords)

    monkeypatch.setattr(model.module, "forward", deaf)
    assert all(pack.is_plain for pack in packs_for(model, ids, [Need("v")]))


@pytest.mark.parametrize(
    ("need", "window", "shares"),
    [("v", None, True), ("v", 16, True), ("v", 8, False), ("mass_previous", None, False), ("pattern_row", None, False)],
)
def test_windows_and_sites_that_name_neighbours_keep_prompts_in_order(need, window, shares):
    model, (_, ids) = tiny_model("llama"), alike_prompts()
    model = replace(model, info=replace(model.info, window=window))
    packs = packs_for(model, ids, [Need(need)])
    assert any(not pack.is_plain for pack in packs) == shares
    assert len(packs) < len(ids), "the same tokens pass once in any case"


@pytest.mark.parametrize(("site", "note", "n"), [
    ("pattern_entropy", "", 6), ("pattern_entropy", "assumed", 9), ("pattern_entropy_null", "", 9),
])  # fmt: skip
def test_what_depends_on_other_prompts_passes_whole_and_a_plan_counts_it(site, note, n):
    model = interp.load("tunnel:bijection-gpt-neox")
    prompts = interp.sampled_prompts(model.task, 6, 0)
    again = [0, 1, 2, 0, 3, 1, 4, 5, 0]
    twice = replace(prompts, prompts=tuple(prompts.prompts[i] for i in again), posterior=None, belief=None)
    ids, passes = [np.array(each.token_ids) for each in twice], shapes_of_passes(model)
    assert TokenisedSet(twice, ids, note=note).n_padded(model, [Need(site)]) == n * len(ids[0])
    if not note:
        capture(model, twice, ids, [Need(site)])
        assert passes[-1][0] == n


def test_a_position_outside_a_prompt_is_named():
    with pytest.raises(PromptError, match=r"^position 7 of prompt 2: the prompt has 5 tokens"):
        row_index(prompts_of(np.arange(9), np.arange(5)), np.array([9, 5]), (7,))
