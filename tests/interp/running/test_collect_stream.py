"""Prompts without end: folded as they come, in constant memory, to what a capture of all of them folds."""

import numpy as np
import psutil
import pytest

import interp
from interp.errors import PromptError, UsageError
from interp.folds import Mean, Moments, PromptMean
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.running.collect_stream import collect_stream
from tests.interp.system.thread_ranks import in_ranks
from tests.tiny_models import VOCAB, fresh_model

NEEDS = (
    Need("v", Moments(), "last"), Need("resid", Mean(), "all"), Need("pattern_entropy", Mean(), "all"),
    Need("next_loss", Mean(), "followed"),
)  # fmt: skip


def token_prompts(n, seed=0, longest=12):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        yield Prompt(token_ids=tuple(int(t) for t in rng.integers(0, VOCAB, size=int(rng.integers(2, longest)))))


def assert_folded_alike(found, whole, needs=NEEDS):
    for need in needs:
        for name, array in whole.folded(need).items():
            np.testing.assert_allclose(found.folded(need)[name], array, rtol=1e-5, atol=1e-6, err_msg=f"{need} {name}")
        assert found.folded(need)["count"].sum() == whole.folded(need)["count"].sum()


@pytest.mark.parametrize("at_once", [1, 7, 1024])
def test_a_stream_is_folded_to_what_a_capture_folds(monkeypatch, at_once):
    monkeypatch.setattr("interp.running.collect_stream.PROMPTS_AT_ONCE", at_once)
    model = fresh_model("llama")
    prompts = PromptSet("all", list(token_prompts(30)))
    ids = [np.array(p.token_ids) for p in prompts]
    whole = capture(model, prompts, ids, NEEDS)
    found = collect_stream(model, token_prompts(30), NEEDS, tokens_per_batch=50)
    assert_folded_alike(found, whole)
    assert found.n_prompts == 30 and found.n_tokens == sum(map(len, ids))


def test_nothing_more_is_taken_from_the_generator_than_one_lot():
    taken = []

    def counting():
        for i, prompt in enumerate(token_prompts(5000)):
            taken.append(i)
            if i == 3000:
                raise KeyboardInterrupt
            yield prompt

    with pytest.raises(KeyboardInterrupt):
        collect_stream(fresh_model("llama"), counting(), [Need("v", Mean())], layers=[0])
    assert len(taken) == 3001


def test_texts_layers_and_windows(tiny_text_model):
    texts = ["one two", "three", "four five six"]
    found = interp.collect_stream(tiny_text_model, iter(texts), [Need("v", Mean())], layers=[-1], window=3)
    whole = interp.collect(tiny_text_model, texts, [Need("v", Mean())], window=3)
    for name, array in whole.folded(Need("v", Mean())).items():
        np.testing.assert_allclose(found.folded(Need("v", Mean()))[name], array[[-1]], rtol=1e-5, atol=1e-7)
    assert found.layers == (-1,) and found.n_tokens == 9


def test_several_processes_fold_a_stream_together():
    models = [fresh_model("llama") for _ in range(3)]
    whole = collect_stream(models[0], token_prompts(40), NEEDS, tokens_per_batch=60)
    for found in in_ranks(3, lambda r: collect_stream(models[r.rank], token_prompts(40), NEEDS, tokens_per_batch=60)):
        assert_folded_alike(found, whole)
        assert found.n_prompts == 40


def test_what_grows_and_what_never_comes_is_refused_in_words():
    model = fresh_model("llama")
    for need in (Need("v"), Need("v", PromptMean()), Need("W_K")):
        with pytest.raises(UsageError, match="it grows with every prompt"):
            collect_stream(model, token_prompts(3), [need])
    with pytest.raises(UsageError, match="no other one to borrow keys from"):
        collect_stream(model, token_prompts(3), [Need("pattern_entropy_null", Mean())])
    with pytest.raises(UsageError, match="no need is named"):
        collect_stream(model, token_prompts(3), [])
    with pytest.raises(PromptError, match="none came"):
        collect_stream(model, iter(()), [Need("v", Mean())])


@pytest.mark.slow
def test_a_hundred_thousand_prompts_cost_no_more_memory_than_ten_thousand():
    model = fresh_model("llama", num_hidden_layers=1)
    process, needs = psutil.Process(), [Need("v", Moments(), "all"), Need("pattern_entropy", Mean(), "all")]
    collect_stream(model, token_prompts(10_000, longest=8), needs)
    before = process.memory_info().rss
    largest = before
    n_tokens = 0

    def watched():
        nonlocal largest, n_tokens
        for i, prompt in enumerate(token_prompts(100_000, seed=1, longest=8)):
            if i % 5000 == 0:
                largest = max(largest, process.memory_info().rss)
            n_tokens += len(prompt.token_ids or ())
            yield prompt

    found = collect_stream(model, watched(), needs)
    assert found.n_prompts == 100_000 and found.n_tokens == n_tokens
    assert int(found.folded(needs[0])["count"][0]) == n_tokens
    # Rows of these needs would be 50 MB; what is left is the allocator's.
    assert largest - before < 16 << 20
