"""A model that one thread reads: a second reader is refused, and whoever merely runs it is left alone.

What `applied` edits are the passes of its own thread and of those that start inside the block.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, MambaConfig

from interp.editing.conditions import Run, read_conditions
from interp.editing.editor import applied
from interp.edits import BypassLayer, FeedForwardOff, RemoveAxis
from interp.errors import InterpError
from interp.hooks.attention import Listener, claimed, listening
from interp.need import Need
from interp.probe import Condition
from interp.reading.forward import capture
from tests.interp.system.test_processes import sequences
from tests.tiny_models import VOCAB, fresh_model, wrap

NEEDS = [Need("v"), Need("resid", at="all"), Need("q_pre"), Need("mlp_out"), Need("next_log_prob")]
IDS = torch.arange(12).view(2, 6) % VOCAB


def in_another_thread(act):
    """What `act()` gives in a thread of its own: its result, or the error it ended with."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
    return done.result() if done.exception() is None else done.exception()


class _Meanwhile(Listener):
    """In the middle of every pass, lets another thread do something once the last layer is reached."""

    def __init__(self, act) -> None:
        self.act, self.found = act, []

    def before(self, call) -> None:
        if call.layer == 2:
            self.found.append(in_another_thread(self.act))


def plain_logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model.module(input_ids=IDS, use_cache=False).logits


def test_a_second_capture_is_refused_and_the_first_one_is_not_disturbed():
    model = fresh_model("llama")
    prompts, ids = sequences(6)
    alone = capture(model, prompts, ids, NEEDS, tokens_per_batch=24)
    second = _Meanwhile(lambda: capture(model, prompts, ids, NEEDS))
    with listening(model, second):
        disturbed = capture(model, prompts, ids, NEEDS, tokens_per_batch=24)
    assert len(second.found) > 1
    assert all(isinstance(e, InterpError) and "another thread is listening" in str(e) for e in second.found)
    for need in NEEDS:
        np.testing.assert_array_equal(disturbed[need], alone[need])
    again = in_another_thread(lambda: capture(model, prompts, ids, NEEDS, tokens_per_batch=24))
    np.testing.assert_array_equal(again[Need("v")], alone[Need("v")])


@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_pass_of_another_thread_is_neither_heard_nor_cut(family, is_edited):
    model = fresh_model(family)
    prompts, ids = sequences(6)
    with applied(model, BypassLayer(layer=1)) if is_edited else nullcontext():
        alone, logits = capture(model, prompts, ids, NEEDS), plain_logits(model)
        other = _Meanwhile(lambda: plain_logits(model))
        with listening(model, other):
            meanwhile = capture(model, prompts, ids, NEEDS)
    assert other.found
    for found in other.found:
        assert found.shape == logits.shape and torch.allclose(found, logits, atol=1e-5)
    for need in NEEDS:
        np.testing.assert_array_equal(meanwhile[need], alone[need])


@pytest.mark.parametrize(
    "edit", [BypassLayer(layer=1), FeedForwardOff(layer=1), RemoveAxis(layer=1, site="resid", axis=np.arange(1.0, 49))]
)
def test_edits_do_not_reach_the_passes_of_another_thread(edit):
    """Nor do the layers that a pass from the middle hands through."""
    model = fresh_model("llama")
    logits = plain_logits(model)
    other = _Meanwhile(lambda: plain_logits(model))
    condition = Condition("c", (edit,), (Need("next_kl"),), lambda c: {"kl": c[Need("next_kl")]})
    run = Run(*sequences(4))
    alone = read_conditions(model, run, [condition])
    with listening(model, other):
        found = read_conditions(model, run, [condition])
    assert len(other.found) >= 2
    assert all(torch.allclose(each, logits, atol=1e-5) for each in other.found)
    np.testing.assert_array_equal(found["c"]["kl"], alone["c"]["kl"])


def test_a_model_without_attention_is_read_by_one_thread_too():
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, state_size=4)
    config.num_attention_heads = 0
    model = wrap(AutoModelForCausalLM.from_config(config).eval())
    prompts, ids = sequences(3)
    with claimed(model):
        refused = in_another_thread(lambda: capture(model, prompts, ids, [Need("resid")]))
        assert isinstance(refused, InterpError) and "use a lock" in str(refused)
        assert capture(model, prompts, ids, [Need("resid")])[Need("resid")].shape[0] == 3
    assert not isinstance(in_another_thread(lambda: capture(model, prompts, ids, [Need("resid")])), Exception)


EDITS = [
    BypassLayer(layer=1),
    FeedForwardOff(layer=1, at=(1, 3)),
    RemoveAxis(layer=1, site="v", axis=np.arange(1.0, 25), at=(1, 3)),
    RemoveAxis(layer=1, site="resid", axis=np.arange(1.0, 49)),
]


@pytest.mark.parametrize("edit", EDITS)
def test_a_thread_that_starts_inside_the_block_is_edited_and_one_that_ran_before_is_not(edit):
    model = fresh_model("llama")
    plain = plain_logits(model)
    with ThreadPoolExecutor(1) as before:
        before.submit(int).result()
        with applied(model, edit):
            edited, inside = plain_logits(model), in_another_thread(lambda: plain_logits(model))
            outside = before.submit(plain_logits, model).result()
    assert torch.equal(inside, edited) and not torch.allclose(edited, plain, atol=1e-3)
    assert torch.allclose(outside, plain, atol=1e-5)
    assert torch.equal(in_another_thread(lambda: plain_logits(model)), plain)


@pytest.mark.parametrize("edit", EDITS)
def test_edited_passes_of_two_threads_at_once_do_not_mix(edit):
    """Each waits for the other inside the layer that is edited; their texts are of unlike length."""
    model, met = fresh_model("llama"), threading.Barrier(2, timeout=60)
    texts = [torch.arange(5)[None], torch.arange(20, 32).view(2, 6)]

    def read(text):
        with torch.inference_mode():
            return model.module(input_ids=text, use_cache=False).logits

    def meet(module, args):
        met.wait()

    with applied(model, edit):
        alone = [read(text) for text in texts]
        attention = model.family.layer_modules(model.module)[1].self_attn
        waits = attention.register_forward_pre_hook(meet)
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(read, texts))
        waits.remove()
    for found, expected in zip(together, alone, strict=True):
        assert torch.equal(found, expected)
