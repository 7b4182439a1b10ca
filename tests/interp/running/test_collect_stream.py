"""Prompts without end: folded as they come, in constant memory, to what a capture of all of them folds."""

import os
import time

import numpy as np
import psutil
import pytest

import interp
from interp.errors import PromptError, UsageError
from interp.need import Need
from interp.prompt import Prompt
from interp.reading.forward import capture
from interp.reductions import Mean, Moments, PromptMean
from interp.running.collect import collect_stream
from tests.interp.hooks.test_ropes import prompts_of
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
        for name, array in whole.reduced(need).items():
            np.testing.assert_allclose(found.reduced(need)[name], array, rtol=1e-5, atol=1e-6, err_msg=f"{need} {name}")
        assert found.reduced(need)["count"].sum() == whole.reduced(need)["count"].sum()


@pytest.mark.parametrize("at_once", [1, 7, 1024])
def test_a_stream_is_folded_to_what_a_capture_folds(monkeypatch, at_once):
    monkeypatch.setattr("interp.running.collect.PROMPTS_AT_ONCE", at_once)
    model, ids = fresh_model("llama"), [np.array(prompt.token_ids) for prompt in token_prompts(30)]
    whole = capture(model, prompts_of(*ids), ids, NEEDS)
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
    for name, array in whole.reduced(Need("v", Mean())).items():
        np.testing.assert_allclose(found.reduced(Need("v", Mean()))[name], array[[-1]], rtol=1e-5, atol=1e-7)
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
    with pytest.raises(UsageError, match="no other one whose keys could be used"):
        collect_stream(model, token_prompts(3), [Need("pattern_entropy_null", Mean())])
    with pytest.raises(UsageError, match="no need is named"):
        collect_stream(model, token_prompts(3), [])
    with pytest.raises(PromptError, match="it is empty"):
        collect_stream(model, iter(()), [Need("v", Mean())])


@pytest.mark.parametrize(
    "n_prompts",
    [
        pytest.param(100_000, marks=pytest.mark.slow),
        pytest.param(int(os.environ.get("INTERP_STREAM_PROMPTS", 1_000_000)), marks=pytest.mark.stress),
    ],
)
def test_memory_stays_and_counts_are_exact_however_many_prompts_come(n_prompts):
    """`INTERP_STREAM_PROMPTS=10000000` is the real size: some forty minutes on one core."""
    model = fresh_model("llama", num_hidden_layers=1)
    process, needs = psutil.Process(), [Need("v", Moments(), "all"), Need("pattern_entropy", Mean(), "last")]
    again = [prompt.token_ids for prompt in token_prompts(1000, seed=1, longest=8)]
    once = collect_stream(model, (Prompt(token_ids=ids) for ids in again), needs)
    assert n_prompts % len(again) == 0
    memory, began = [], time.monotonic()

    def watched():
        for i in range(n_prompts):
            if i % (n_prompts // 100) == 0:
                memory.append(process.memory_info().rss)
                print(f"{i} prompts, {time.monotonic() - began:.0f} s, {memory[-1] / 1e6:.1f} MB", flush=True)
            yield Prompt(token_ids=tuple(again[i % len(again)]))  # a prompt of its own each time

    found, times = collect_stream(model, watched(), needs), n_prompts // len(again)
    assert found.n_prompts == n_prompts and found.n_tokens == times * once.n_tokens
    for need in needs:
        for name, array in once.reduced(need).items():
            close = {"rtol": 0, "atol": 0} if name == "count" else {"rtol": 1e-5, "atol": 1e-7}
            expected = array * (times if name == "count" else 1)
            np.testing.assert_allclose(found.reduced(need)[name], expected, **close)
    # Rows of these needs would be 500 bytes a prompt; what is left is the allocator's.
    assert max(memory) - memory[10] < 16 << 20, memory
