"""Where memory gives out the batch is halved, and what was captured is the same: failures are injected everywhere."""

import warnings

import numpy as np
import pytest
import torch

from interp.editing.conditions import Run, read_conditions
from interp.edits import AblateHeads, RemoveAxis
from interp.errors import InterpError
from interp.need import Need
from interp.probe import Condition
from interp.reading.batches import ran_out
from interp.reading.forward import capture
from interp.reductions import PromptMean
from tests.captures import assert_captures_agree
from tests.interp.system.thread_ranks import in_ranks
from tests.quick import quick
from tests.tiny_models import VOCAB, fresh_model, prompts_of, shapes_of_passes

NEEDS = (
    Need("v"), Need("resid", at="all"), Need("pattern_entropy", at="all"), Need("pattern_entropy_null", at="all"),
    Need("next_log_prob"), Need("lens_kl"), Need("attn_logit"), Need("next_loss", at="followed"),
    Need("q", PromptMean(), "all"),
)  # fmt: skip
CLOSE = {"rtol": 2e-4, "atol": 2e-5}
ERRORS = (
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
)


def sequences(n=9, seed=0):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, VOCAB, size=(4, 7, 11)[i % 3]) for i in range(n)]
    return prompts_of(*ids), ids


class Failing:
    """Fails at the calls of the given numbers, counted from 0, if more than one item passes."""

    def __init__(self, at, error=None, larger_than=1000):
        self.at, self.error, self.larger_than, self.n = set(at), error or MemoryError(), larger_than, -1
        self.n_raised = 0

    def __call__(self, n_items):
        self.n += 1
        if (self.n in self.at and n_items > 1) or n_items > self.larger_than:
            self.n_raised += 1
            raise self.error


def fail_in_block(model, layer, failing):
    block = model.family.layer_modules(model.module)[layer]
    return block.register_forward_hook(
        lambda module, args, out: failing(len(out[0] if isinstance(out, tuple) else out))
    )


@pytest.fixture(scope="module")
def truth():
    prompts, ids = sequences()
    return capture(fresh_model("llama"), prompts, ids, NEEDS, tokens_per_batch=40)


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("at", quick([[0], [1, 2, 3]], [[0], [1], [0, 1], [1, 2, 3]]))
def test_a_pass_that_fails_at_any_layer_leaves_nothing_twice(truth, layer, at):
    prompts, ids = sequences()
    model = fresh_model("llama")
    fail_in_block(model, layer, Failing(at))
    with pytest.warns(RuntimeWarning, match="out of memory in a batch of"):
        assert_captures_agree(truth, capture(model, prompts, ids, NEEDS, tokens_per_batch=40), **CLOSE)


@pytest.mark.parametrize("k", quick([0, 17, 55], [0, 3, 11, 17, 26, 34, 41, 55]))
def test_a_reduction_that_fails_leaves_nothing_twice(truth, monkeypatch, k):
    """The k-th thing that is folded, of any need at any layer, in any batch."""
    from interp.reading.collector import Collector

    prompts, ids = sequences()
    failing, fold = Failing([k, k + 20]), Collector._reduce

    def breaking(self, need, layers, rows, start=0):
        failing(rows.shape[1])
        fold(self, need, layers, rows, start)

    monkeypatch.setattr(Collector, "_reduce", breaking)
    with pytest.warns(RuntimeWarning, match="continuing with batches of up to"):
        assert_captures_agree(truth, capture(fresh_model("llama"), prompts, ids, NEEDS, tokens_per_batch=40), **CLOSE)
    assert failing.n > k


@pytest.mark.parametrize("error", ERRORS, ids=["numpy", "device", "processor"])
def test_later_batches_are_cut_to_what_fitted(truth, error):
    prompts, ids = sequences()
    model = fresh_model("llama")
    fail_in_block(model, 1, Failing([], error, larger_than=2))
    passes = shapes_of_passes(model)
    with pytest.warns(RuntimeWarning) as said:
        assert_captures_agree(truth, capture(model, prompts, ids, NEEDS, tokens_per_batch=60), **CLOSE)
    assert len(said) <= 3 and len(passes) <= 12, "it does not run against the wall again with every batch"


def test_only_a_lack_of_memory_for_a_single_prompt_is_refused_in_words():
    prompts, ids = sequences()
    model = fresh_model("llama")
    fail_in_block(model, 1, Failing([], larger_than=0))
    with pytest.warns(RuntimeWarning), pytest.raises(InterpError, match=r"reading a prompt of \d+ tokens") as refused:
        capture(model, prompts, ids, [Need("v")])
    assert "--window" in str(refused.value) and "bfloat16" in str(refused.value)
    model = fresh_model("llama")
    fail_in_block(model, 1, Failing([0], RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        capture(model, prompts, ids, [Need("v")])
    assert not ran_out(ValueError("out of memory")) and all(map(ran_out, ERRORS))


@pytest.mark.parametrize("at", [(0,), (1, 2)])
def test_several_processes_halve_each_for_itself_lent_keys_included(truth, at):
    prompts, ids = sequences()
    models = [fresh_model("llama") for _ in range(2)]
    failing = Failing(at)
    fail_in_block(models[1], 2, failing)
    with warnings.catch_warnings():  # whether a thread's warning is heard depends on what the other one mutes just then
        warnings.simplefilter("ignore")
        found = in_ranks(2, lambda r: capture(models[r.rank], prompts, ids, NEEDS, tokens_per_batch=200))
    assert failing.n_raised == len(at)
    for parts in found:
        assert_captures_agree(truth, parts, **CLOSE)


def readouts(model, tokens_per_pass):
    prompts, ids = sequences(6, seed=1)
    needs = (Need("next_kl"), Need("resid"), Need("edit_size"), Need("qk_cosine_null"))

    def read(under):
        size = under.arrays[Need("edit_size")]
        return {"kl": under[Need("next_kl")], "at": under[Need("resid")][-1], "null": under[Need("qk_cosine_null")],
                "size": size["rows"], "share": size["variance_share"]}  # fmt: skip

    rng = np.random.default_rng(0)
    conditions = [Condition(f"{i}", (RemoveAxis(layer=1, axis=rng.normal(size=24)),), needs, read) for i in range(3)]
    conditions.append(Condition("mean", (AblateHeads(layer=1, heads=(0,), by="mean"),), needs, read))
    return read_conditions(model, Run(prompts, ids), conditions, tokens_per_pass=tokens_per_pass)


@pytest.fixture(scope="module", params=[60, 400])
def whole(request):
    """How many tokens pass at once, and what is read where memory suffices."""
    return request.param, readouts(fresh_model("llama"), request.param)


@pytest.mark.parametrize("at", quick([[0, 1], [4]], [[0], [0, 1], [2, 3], [4]]))
def test_conditions_that_share_a_pass_are_halved_together(at, whole):
    tokens_per_pass, expected = whole
    model = fresh_model("llama")
    failing = Failing(at)
    fail_in_block(model, 2, failing)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = readouts(model, tokens_per_pass)
    except InterpError as error:
        raise AssertionError(f"a single prompt was tried: {error}") from error
    assert said or failing.n < min(at)
    for name, arrays in expected.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(found[name][key], array, rtol=2e-4, atol=2e-5, err_msg=f"{name} {key}")
