"""The passes of the self-check: shared, few, and exact where they have to be; what they must not miss."""

from dataclasses import replace

import pytest
import torch

from interp.family import Layout
from interp.hooks.attention import claimed
from interp.loading.load import load
from interp.reading.lens import Lens
from interp.self_check import checks
from interp.self_check.checks import STEP, dose_zero, edit_acts
from interp.self_check.selfcheck import check_model, run_checks
from interp.self_check.two_sequences import LENGTHS, HookedPass, Observations
from interp.system.rounding import BOUND, relative_error
from tests.tiny_models import FAMILIES, fresh_model, shapes_of_passes, tiny_model


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
    recorder = seen.heard
    assert relative_error(seen.heard.logits, seen.logits(seen.ids)) < 1e-5
    assert all(len(x) == 2 for x in (*recorder.z, *recorder.inputs, *recorder.outputs, *recorder.sites.values()))
    for edit, logits in recorder.edited.items():
        edited, unedited = seen.edited_alone(edit)
        assert relative_error(logits, edited) < 1e-5
        assert torch.equal(edited, unedited) == (edit[1] == 0)


def test_an_edit_acts_in_its_own_layer_only(seen):
    """Llama's attention has no biases: without values it returns zero."""
    under = seen.heard.edited
    for edit in seen.edits:
        attention = seen.model.module.model.layers[edit[0]].self_attn
        handle = attention.register_forward_hook(lambda module, args, out: (torch.zeros_like(out[0]), *out[1:]))
        assert relative_error(under[edit], seen.logits(seen.ids[:1])[0]) < 1e-5
        handle.remove()


def test_dose_zero_is_asked_again_alone_where_rows_of_a_batch_differ(seen, monkeypatch):
    seen.heard.edited[seen.nothing] = seen.heard.edited[seen.nothing] + 1e-6
    assert dose_zero(seen)[0] == 0
    monkeypatch.setattr(Observations, "nothing", (0, 1e-3))
    seen.heard.edited[seen.nothing] = seen.heard.logits[0] + 1e-6
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
        for (site, layer), x in list(seen.heard.sites.items()):
            if site in ("q_pre", "k_pre"):
                seen.heard.sites[site, layer] = x.roll(-1, dims=-1)
        assert checks.projections(seen)[0] > seen.bound


def test_what_is_not_restored_is_named(monkeypatch):
    model = fresh_model("llama")
    lasting, ends = [], HookedPass.ends

    def leaves_a_hook(heard, model):
        norm = model.module.model.norm
        lasting.append(norm.register_forward_hook(lambda module, args, out: out * (1 + 1e-6)))
        return ends(heard, model)

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
    moved = dict(seen.heard.edited)
    for edit in seen.edits:
        seen.heard.edited[edit] = seen.heard.logits[0]
    assert edit_acts(seen)[0] == len(seen.edits)
    seen.heard.edited |= moved  # a layer that is switched off may not move anything
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
        seen.heard = HookedPass(2, logits=eager * (1 + ours * BOUND[dtype]))
        error, bound, _ = checks.equals_eager(seen)
    assert (error <= bound) == passes and error == pytest.approx(ours * BOUND[dtype], rel=0.05)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_checkpoints_are_read(dtype, stories):
    assert all(check.passed for check in load(stories, dtype=dtype).checks)
