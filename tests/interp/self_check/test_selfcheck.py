"""The passes of the self-check: shared, few, and exact where they have to be; what they must not miss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import interp
from interp.errors import ModelError
from interp.family import Layout
from interp.hooks.attention import claimed
from interp.loading.load import load
from interp.reading.lens import Lens
from interp.self_check import checks
from interp.self_check.checks import STEP, dose_zero, edit_acts
from interp.self_check.selfcheck import check_model, run_checks
from interp.self_check.two_sequences import LENGTHS, HookedPass, Observations
from interp.system.rounding import BOUND, error_of_logits, relative_error
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, prompts_of, shapes_of_passes, tiny_model, wrap


@pytest.fixture
def seen():
    model = fresh_model("llama")
    with torch.inference_mode(), claimed(model):
        yield Observations(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_four_passes_serve_all_checks(family):
    model = fresh_model(family)
    passes = shapes_of_passes(model)
    check_model(model)
    longest, short = LENGTHS
    assert passes[0] == passes[-1] == (1, short) and passes[2] == (2, longest) and len(passes) == 4
    n_edits = len({0, model.info.n_layers // 2, model.info.n_layers - 1})
    assert passes[1] == (2 + 1 + n_edits, longest)


def test_rows_beside_edited_ones_are_those_of_an_unedited_pass(seen):
    recorder = seen.captured
    assert relative_error(seen.captured.logits, seen.logits(seen.ids)) < 1e-5
    assert all(len(x) == 2 for x in (*recorder.z, *recorder.inputs, *recorder.outputs, *recorder.sites.values()))
    for edit, logits in recorder.edited.items():
        edited, unedited = seen.edited_alone(edit)
        assert relative_error(logits, edited) < 1e-5
        assert torch.equal(edited, unedited) == (edit[1] == 0)


def test_an_edit_acts_in_its_own_layer_only(seen):
    """Llama's attention has no biases: without values it returns zero."""
    under = seen.captured.edited
    for edit in seen.edits:
        attention = seen.model.module.model.layers[edit[0]].self_attn
        handle = attention.register_forward_hook(lambda module, args, out: (torch.zeros_like(out[0]), *out[1:]))
        assert relative_error(under[edit], seen.logits(seen.ids[:1])[0]) < 1e-5
        handle.remove()


def test_dose_zero_is_asked_again_alone_where_rows_of_a_batch_differ(seen, monkeypatch):
    seen.captured.edited[seen.nothing] = seen.captured.edited[seen.nothing] + 1e-6
    assert dose_zero(seen)[0] == 0
    monkeypatch.setattr(Observations, "nothing", (0, 1e-3))
    seen.captured.edited[seen.nothing] = seen.captured.logits[0] + 1e-6
    assert dose_zero(seen)[0] == 1


@pytest.mark.parametrize("size", [1, 4, STEP, 12, 64])
def test_compared_features_take_turns_over_the_layers(size):
    picked = [set(range(size)[checks._some(layer, size)]) for layer in range(STEP)]
    assert all(picked) and set.union(*picked) == set(range(size))


@pytest.mark.parametrize("family", FAMILIES)
def test_features_of_a_head_in_another_order_are_refused(family):
    """One feature further on: what a subset of the features has to notice in every layer."""
    model = tiny_model(family)
    assert model.family.layout is not None

    class Turned(Layout):
        def pick(self, out, which, shape):
            return super().pick(out, which, shape).roll(1, dims=-1)

    layout = Turned(model.family.layout.kind, model.family.layout.modules, model.family.layout.transposed)
    turned = replace(model, family=replace(model.family, layout=layout))
    seen = Observations(turned)
    with torch.inference_mode(), claimed(turned):
        for (site, layer), x in list(seen.captured.sites.items()):
            if site in ("q_pre", "k_pre"):
                seen.captured.sites[site, layer] = x.roll(-1, dims=-1)
        assert checks.projections(seen)[0] > seen.bound


def test_what_is_not_restored_is_named(monkeypatch):
    model = fresh_model("llama")
    lasting, ends = [], HookedPass.ends

    def leaves_a_hook(captured, model):
        norm = model.module.model.norm
        lasting.append(norm.register_forward_hook(lambda module, args, out: out * (1 + 1e-6)))
        return ends(captured, model)

    monkeypatch.setattr(HookedPass, "ends", leaves_a_hook)
    failed = [check.name for check in run_checks(model) if not check.passed]
    lasting[0].remove()
    assert failed == ["restored"]


def test_edits_that_move_nothing_are_counted_beside_the_mean_token(monkeypatch, seen):
    monkeypatch.setattr("interp.reading.lens._TOKENS_AT_ONCE", 7)
    model = tiny_model("llama")
    weight = model.module.get_output_embeddings().weight
    assert torch.allclose(Lens(model)._mean_token, weight.mean(dim=0), atol=1e-6)
    assert edit_acts(seen)[0] == 0
    moved = dict(seen.captured.edited)
    for edit in seen.edits:
        seen.captured.edited[edit] = seen.captured.logits[0]
    assert edit_acts(seen)[0] == len(seen.edits)
    seen.captured.edited |= moved  # a layer that is switched off may not move anything
    monkeypatch.setattr(checks, "_is_switched_off", lambda seen, layer: True)
    assert edit_acts(seen)[0] == len(seen.edits)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(
    ("own", "ours", "passes"),
    [(0.0, 0.9, True), (0.0, 1.5, False), (1.0, 1.9, True), (1.0, 2.5, False), (3.0, 3.9, True), (9.0, 4.5, False)],
)
def test_a_model_that_amplifies_rounding_is_measured_by_what_transformers_own_kernels_differ_by(
    dtype, own, ours, passes, monkeypatch
):
    """Differences in units of the precision's bound: twice that of the kernels is rounding, up to four bounds."""
    model = tiny_model("llama")
    seen = Observations(replace(model, info=replace(model.info, dtype=dtype)))
    with torch.inference_mode(), claimed(model):
        eager = seen.eager
        monkeypatch.setattr(Observations, "logits", lambda self, ids: eager * (1 + own * BOUND[dtype]))
        seen.captured = HookedPass(2, logits=eager * (1 + ours * BOUND[dtype]))
        error, bound, _ = checks.equals_eager(seen)
    assert (error <= bound) == passes and error == pytest.approx(ours * BOUND[dtype], rel=0.05)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_checkpoints_are_read(dtype, stories):
    assert all(check.passed for check in load(stories, dtype=dtype).checks)


PADDING = (-100.0, -1e4, -1e9, torch.finfo(torch.float32).min, -torch.inf)
"""Biases at the head of tokens that are never predicted: they neither hide an error nor count as one."""

N_REAL = 90
PROMPTS = prompts_of(*np.random.default_rng(0).integers(3, N_REAL, (4, 9)))


def padded(value, family="phi"):
    """Phi has a bias at its head; Llama gets one."""
    module = fresh_model(family).module
    if module.lm_head.bias is None:
        module.lm_head.bias = torch.nn.Parameter(torch.randn(VOCAB) * 0.1)
    with torch.no_grad():
        module.lm_head.bias[N_REAL:] = value
    return module


@pytest.mark.parametrize("family", ["phi", "llama"])
@pytest.mark.parametrize("value", PADDING)
def test_a_padded_model_passes_and_reads_as_the_same_without_its_padding(value, family):
    module = padded(value, family)
    model = interp.load(module)
    sites = ["lens_entropy", "lens_kl", "next_log_prob", "v"]
    got = interp.collect(model, PROMPTS, sites)
    with torch.no_grad():
        logits = torch.stack([module(torch.tensor([p.token_ids])).logits[0, -1, :N_REAL] for p in PROMPTS])
    log_p = logits.double().log_softmax(-1).numpy() / np.log(2)
    assert np.allclose(got["next_log_prob"][:, :N_REAL], log_p, atol=1e-4)
    assert np.allclose(got.rows["next_entropy_bits"], -(np.exp2(log_p) * log_p).sum(-1), atol=1e-4)
    assert (np.exp2(got["next_log_prob"][:, N_REAL:]) < 1e-40).all()
    assert np.isfinite(got["lens_entropy"]).all() and np.isfinite(got["lens_kl"]).all()
    assert np.allclose(got["lens_entropy"][-1], got.rows["next_entropy_bits"], atol=1e-4)
    assert np.allclose(got["lens_kl"][-1], 0, atol=1e-4)


class Wrong(torch.nn.Module):
    """A head that answers otherwise under another attention, in a batch, or always: what the checks are for."""

    def __init__(self, head, is_wrong):
        super().__init__()
        self.weight, self.bias, self.is_wrong = head.weight, head.bias, is_wrong

    def forward(self, x):
        logits = torch.nn.functional.linear(x, self.weight, self.bias)
        return logits * 1.01 if self.is_wrong(x) else logits


@pytest.mark.parametrize("value", PADDING)
@pytest.mark.parametrize("check", ["eager", "head", "batched"])
def test_an_error_of_a_hundredth_is_seen_beside_any_padding(value, check):
    module = padded(value)
    wrong = {
        "eager": lambda x: module.config._attn_implementation == "eager",
        "head": lambda x: True,
        "batched": lambda x: len(x) > 1,
    }
    module.lm_head = Wrong(module.lm_head, wrong[check])
    module.config._attn_implementation = "sdpa"
    model = wrap(module)
    assert check in {each.name for each in run_checks(model) if not each.passed}


def test_padding_that_comes_and_goes_is_an_error():
    logits = torch.randn(3, 8)
    other = logits.clone()
    other[:, 5] = -torch.inf
    assert error_of_logits(other, logits) == error_of_logits(logits, other) == float("inf")
    assert error_of_logits(other, other) == 0
    nothing = torch.full((3, 8), -torch.inf)
    assert error_of_logits(nothing, nothing) == float("inf")
    other[0, 0] = torch.nan
    assert error_of_logits(other, other) == float("inf")


@pytest.mark.parametrize("broken", ["all", "plus", "nan", "weight"])
def test_other_infinities_are_still_refused(broken):
    module = padded(-torch.inf)
    with torch.no_grad():
        if broken == "weight":
            module.lm_head.weight[0, 0] = -torch.inf
        else:
            which = slice(None) if broken == "all" else 0
            module.lm_head.bias[which] = {"all": -torch.inf, "plus": torch.inf, "nan": torch.nan}[broken]
    with pytest.raises(ModelError, match="'finite' failed"):
        interp.load(module)
