"""In which batches prompts pass: every prompt once, within the tokens allowed, and hardly any padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.errors import PromptError
from interp.reading.batches import RowIndex, batches_of, cut, row_index
from tests.tiny_models import prompts_of, tiny_model

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


def test_batches_go_on_with_shorter_prompts():
    assert [len(batch) for batch in cut(np.array([2, 3, 40]), 2048)] == [3]
    assert [len(batch) for batch in cut(np.repeat([10, 40], [100, 10]), 2048)] == [10, 100]


SEQUENCES = [np.array(each) for each in ([1, 2, 3], [1, 2], [4, 2, 3], [5, 2])]


def test_a_batch_has_the_longest_first_and_halves():
    (batch,) = batches_of(SEQUENCES, 1000, tiny_model("llama"))
    assert batch.ids.tolist() == [[1, 2, 3], [4, 2, 3], [1, 2, 0], [5, 2, 0]]
    assert batch.prompts.tolist() == [0, 2, 1, 3] and not batch.layout
    first, second = batch.halves()
    assert (first.prompts.tolist(), second.prompts.tolist()) == ([0, 2], [1, 3])
    assert (first.ids.tolist(), second.ids.tolist()) == ([[1, 2, 3], [4, 2, 3]], [[1, 2], [5, 2]])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=25), st.data())
def test_rows_of_prompts_and_of_their_ends_are_their_tokens_and_see_those_before_them(prompts, data):
    ids = [np.array(each) for each in prompts]
    starts = np.array([data.draw(st.integers(0, len(each) - 1)) for each in ids])
    places = [data.draw(st.permutations(range(s, len(x)))) for s, x in zip(starts, ids, strict=True)]
    (batch,) = batches_of(ids, 10_000, tiny_model("llama"), starts=starts)
    index = RowIndex(np.repeat(np.arange(len(ids)), [len(x) for x in places]), np.concatenate(places))
    rows = batch.rows(index)
    assert sorted(rows.row.tolist()) == list(range(len(index)))
    expected = [ids[prompt][at] for prompt, at in zip(rows.prompt, index.position[rows.row], strict=True)]
    assert batch.ids[rows.item, rows.position].tolist() == expected
    slots = batch.ids.gather(1, rows.padded.expand(len(batch.ids), -1))
    assert slots[rows.item, rows.slot].tolist() == expected
    if batch.layout:
        before = starts.max()
        kept = np.concatenate([np.tile(np.arange(before), (len(ids), 1)), batch.layout["position_ids"]], axis=1)
        seen = batch.layout["attention_mask"][rows.item, 0, rows.position].numpy()
        for item, sees, at in zip(rows.item, seen, index.position[rows.row], strict=True):
            assert kept[item][sees].tolist() == list(range(at + 1))


def test_a_position_outside_a_prompt_is_named():
    with pytest.raises(PromptError, match=r"^position 7 of prompt 2: the prompt has 5 tokens"):
        row_index(prompts_of(np.arange(9), np.arange(5)), np.array([9, 5]), (7,))
