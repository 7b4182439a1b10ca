"""In which batches prompts pass: every prompt once, within the tokens allowed, and hardly any padding."""

import numpy as np
import pytest

from interp.reading.batches import cut

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
    assert all(len(batch) * lengths[batch[-1]] <= 2048 or len(batch) == 1 for batch in batches)
    assert all((np.diff(lengths[batch]) >= 0).all() for batch in batches)


@pytest.mark.parametrize("name", ["five lengths", "short and long", "mostly short"])
def test_less_than_a_twentieth_of_the_tokens_is_padding(name):
    lengths = LENGTHS[name]
    batches = cut(lengths, 2048)
    padded = sum(len(batch) * lengths[batch[-1]] for batch in batches)
    assert lengths.sum() > 0.95 * padded
    assert len(batches) <= 2 * lengths.sum() / 2048


def test_a_batch_too_small_to_be_worth_a_pass_goes_on_with_longer_prompts():
    assert [len(batch) for batch in cut(np.array([2, 3, 40]), 2048)] == [3]
    assert [len(batch) for batch in cut(np.repeat([10, 40], [100, 10]), 2048)] == [100, 10]
