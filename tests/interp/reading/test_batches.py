"""In which batches prompts pass: every prompt once, within the tokens allowed, and hardly any padding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.need import Need
from interp.reading.batches import Batches, RowIndex, cut, halves, twins
from interp.reading.forward import capture
from interp.running.passes import TokenisedSet

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
def test_every_prompt_passes_once_in_batches_of_the_size_allowed(name):
    lengths = LENGTHS[name]
    batches = cut(lengths, 2048)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) * lengths[batch[0]] <= 2048 or len(batch) == 1 for batch in batches)
    assert all((np.diff(lengths[np.concatenate(batches)]) <= 0).all() for batch in batches)


@pytest.mark.parametrize("name", ["five lengths", "short and long", "mostly short"])
def test_less_than_a_twentieth_of_the_tokens_is_padding(name):
    lengths = LENGTHS[name]
    batches = cut(lengths, 2048)
    padded = sum(len(batch) * lengths[batch[0]] for batch in batches)
    assert lengths.sum() > 0.95 * padded
    assert len(batches) <= 2 * lengths.sum() / 2048


def test_a_batch_too_small_to_be_worth_a_pass_goes_on_with_shorter_prompts():
    assert [len(batch) for batch in cut(np.array([2, 3, 40]), 2048)] == [3]
    assert [len(batch) for batch in cut(np.repeat([10, 40], [100, 10]), 2048)] == [10, 100]


SEQUENCES = [np.array(each) for each in ([1, 2, 3], [1, 2], [1, 2, 3], [1, 2, 3], [1, 2], [4, 2, 3])]


def _twins(*indexes):
    found = twins(SEQUENCES, [Need("v")], indexes)
    assert found is not None
    return found


def test_twins_have_the_same_tokens_and_are_read_at_the_same_positions():
    last = RowIndex(np.arange(6), np.array([2, 1, 2, 1, 1, 2]))  # the fourth prompt is read elsewhere than the first
    assert _twins(last).tolist() == [0, 1, 0, 3, 1, 5]
    assert _twins().tolist() == [0, 1, 0, 0, 1, 5]


def test_a_batch_with_twins_holds_each_sequence_once_and_the_rows_of_all():
    batch = Batches(SEQUENCES, 64, _twins()).make(0, torch.device("cpu"))
    assert batch.ids.tolist() == [[1, 2, 3], [4, 2, 3], [1, 2, 0]]
    assert batch.prompts.tolist() == [0, 2, 3, 5, 1, 4]
    index = RowIndex(np.repeat(np.arange(6), 2), np.tile([0, 1], 6))
    rows = batch.rows(index)
    assert rows.prompt.tolist() == np.repeat([0, 2, 3, 5, 1, 4], 2).tolist()
    read = batch.ids[rows.item, rows.position].tolist()
    assert read == [SEQUENCES[prompt][at] for prompt, at in zip(rows.prompt, index.position[rows.row], strict=True)]
    first, second = halves(batch, np.array([3, 2, 3, 3, 2, 3]))
    assert (first.prompts.tolist(), second.prompts.tolist()) == ([0, 2, 3, 5], [1, 4])
    assert (first.item.tolist(), second.item.tolist()) == ([0, 0, 0, 1], [0, 0])
    assert (first.ids.tolist(), second.ids.tolist()) == ([[1, 2, 3], [4, 2, 3]], [[1, 2]])


SITES = [Need("v"), Need("pattern_entropy"), Need("outcome_log_prob"), Need("resid", at="all")]


def _repeated(monkeypatch):
    model = interp.load("tunnel:bijection-gpt-neox")
    prompts = interp.sampled_prompts(model.task, 6, 0)
    once = [each.token_ids for each in prompts.prompts]
    again = [0, 1, 2, 0, 3, 1, 4, 5, 0]
    twice = replace(prompts, prompts=tuple(prompts.prompts[i] for i in again), posterior=None, belief=None)
    sizes = []
    forward = model.module.forward

    def counted(*args, **keywords):
        sizes.append(len(keywords["input_ids"]))
        return forward(*args, **keywords)

    monkeypatch.setattr(model.module, "forward", counted)
    return model, twice, [np.array(once[i]) for i in again], sizes


def test_twins_are_read_as_they_would_be_alone(monkeypatch):
    model, prompts, ids, sizes = _repeated(monkeypatch)
    read = capture(model, prompts, ids, SITES)
    assert sizes == [6]
    for need in SITES:
        axis = 0 if need.described.layers == "once" else 1
        of = read.tables[need.at]["prompt"]
        for prompt in range(len(ids)):
            alone = capture(model, replace(prompts, prompts=(prompts.prompts[prompt],)), [ids[prompt]], [need])[need]
            np.testing.assert_allclose(np.compress(of == prompt, read[need], axis), alone, atol=2e-5)


@pytest.mark.parametrize("lent", [False, True])
def test_what_depends_on_other_prompts_passes_whole(monkeypatch, lent):
    model, prompts, ids, sizes = _repeated(monkeypatch)
    capture(model, prompts, ids, [Need("pattern_entropy_null" if lent else "pattern_entropy")])
    assert sizes == [9 if lent else 6]


@pytest.mark.parametrize(("site", "note", "n"), [("v", "", 6), ("v", "assumed", 9), ("pattern_entropy_null", "", 9)])
def test_a_plan_counts_the_prompts_that_pass(monkeypatch, site, note, n):
    _, prompts, ids, _ = _repeated(monkeypatch)
    assert TokenisedSet(prompts, ids, note).n_padded(2048, [Need(site)]) == n * len(ids[0])
