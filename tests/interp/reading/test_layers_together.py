"""Layers reduced together, as many as there is room for, and parts of the vocabulary, give what each alone gives."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from interp.need import Need
from interp.reading import collector, lens
from interp.reading.forward import capture
from interp.reading.lens import Lens
from interp.reductions import PromptMean
from interp.running.choose_probes import choose_probes
from tests.interp.test_families import CONFIGS, FEW, tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, alike_prompts, fresh_model, tiny_model

NEEDS = (
    Need("v"), Need("q", at="all"), Need("z"), Need("attn_out"), Need("resid", at="all"),
    Need("next_loss", at="followed"),
    Need("pattern_entropy"), Need("pattern_entropy", PromptMean(), "all"), Need("pattern_entropy_no_first_null"),
    Need("pattern_entropy_null", PromptMean(), "all"), Need("qk_cosine", at="all"), Need("qk_logit_no_first_null"),
    Need("sink_mass", PromptMean(), "all"), Need("mass_previous", at="all"), Need("pattern_row"), Need("mlp_logit"),
    Need("lens_kl"), Need("outcome_log_prob"),
)  # fmt: skip


def read(model, tokens_per_batch=40):
    prompts, ids = alike_prompts()
    return capture(model, prompts, ids, NEEDS, tokens_per_batch=tokens_per_batch)


def assert_same(one, other):
    for need in NEEDS:
        for name, array in one.reduced(need).items():
            np.testing.assert_allclose(other.reduced(need)[name], array, rtol=1e-4, atol=2e-5, err_msg=f"{need} {name}")


@pytest.mark.parametrize("kind", quick([*FEW, "bloom", "gpt_oss", "gemma2"], [*FAMILIES, *CONFIGS]))
def test_layers_that_are_read_together_are_read_as_each_alone(kind, monkeypatch):
    model = tiny_model(kind) if kind in FAMILIES else tiny(kind)
    together = read(model)
    monkeypatch.setattr(collector, "_WAITING_BYTES", {True: 0})
    assert_same(read(model), together)


@pytest.mark.parametrize("limits", [(1 << 16, 1 << 26), (1 << 28, 1 << 12)], ids=["bytes", "scores"])
def test_only_as_many_layers_wait_as_there_is_room_for(limits, monkeypatch):
    model, sizes, stacked = fresh_model("llama", num_hidden_layers=6), [], collector.stacked
    monkeypatch.setattr(collector, "stacked", lambda calls: sizes.append(len(calls)) or stacked(calls))
    together = read(model)
    assert max(sizes) == 6
    sizes.clear()
    for name, limit in zip(("_WAITING_BYTES", "_WAITING_SCORES"), limits, strict=True):
        monkeypatch.setattr(collector, name, {True: limit})
    assert_same(together, read(model))
    assert max(sizes) > 1 and min(sizes) < 6, sizes


class Counting(TorchDispatchMode):
    """Counts the operations that compute something, and the copies that leave the device."""

    def __init__(self):
        super().__init__()
        self.n = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        is_new = isinstance(found, torch.Tensor) and all(
            found is not a and not found._is_view() for a in args if isinstance(a, torch.Tensor)
        )
        self.n[is_new] += 1
        return found


def test_a_layer_costs_few_operations_beyond_its_own(monkeypatch):
    """Each is a kernel that a GPU is asked for, and each copy a time that it waits."""
    model = fresh_model("llama", num_hidden_layers=12)
    prompts, ids = alike_prompts()
    needs = [need for probe in choose_probes(["value_axis", "manifold", "qk_alignment", "components"]).probes
             for need in probe.needs if need.described.source not in ("weights", "edit")]  # fmt: skip
    copies, copy = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x, *args, **more: copies.append(1) or copy(x, *args, **more))
    with Counting() as plain, torch.inference_mode():
        model.module(torch.from_numpy(ids[0])[None])
    with Counting() as ours:
        capture(model, prompts, ids, needs, tokens_per_batch=10**6)
    assert ours.n[True] < 4 * plain.n[True]
    assert len(copies) < 3 * len(needs)


@pytest.mark.parametrize("family", [*FAMILIES, "gemma2"])
@pytest.mark.parametrize("columns", [1, 7, VOCAB, 10 * VOCAB])
def test_surprise_in_parts_of_the_vocabulary_is_that_of_the_models_own_logits(family, columns, monkeypatch):
    monkeypatch.setattr(lens, "_AT_ONCE", {True: 1})
    monkeypatch.setattr(lens, "_FEWEST_COLUMNS", columns)
    model = tiny_model(family) if family in FAMILIES else tiny(family)  # Gemma 2 soft-caps its logits
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, size=(3, 9)))
    entering = []
    handle = model.module.get_output_embeddings().register_forward_pre_hook(lambda m, args: entering.append(args[0]))
    with torch.inference_mode():
        logits = model.module(input_ids=ids).logits[:, :-1].double()
        handle.remove()
        found = Lens(model).surprise(entering[0][:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        nothing = Lens(model).surprise(entering[0][0, :0], ids[0, :0])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert nothing.shape == (0,)
