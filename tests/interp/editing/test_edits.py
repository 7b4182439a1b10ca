"""Every kind of edit against the float64 formulas of the four families, and what edits refuse, in words."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.editing.steps import EditedRows, make_steps
from interp.edits import (
    AblateHeads,
    AttentionOff,
    BypassLayer,
    FeedForwardOff,
    KeepAxis,
    RemoveAxis,
    ReplaceCoordinates,
    RotateAxes,
    ShiftAxis,
)
from interp.errors import InterpError, UsageError
from interp.hooks.attention import Listener, listening
from tests.interp.reference import run_reference
from tests.tiny_models import FAMILIES, VOCAB, n_hooks, tiny_model

IDS = np.random.default_rng(5).integers(0, VOCAB, size=9)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


def width(model, site):
    info = model.info
    return {"resid": info.d_model, "q": 48, "z": 48}.get(site, info.n_kv_heads * info.d_head)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def orthogonal(n, seed=0):
    return np.linalg.qr(draw(n, n, seed=seed))[0]


def flat(x):
    return x if x.ndim == 2 else x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def like(y, x):
    return y if x.ndim == 2 else y.reshape(x.shape[1], x.shape[0], -1).transpose(1, 0, 2)


def reference_logits(model, changes):
    """Logits in float64 with `changes` {(site, layer): function of [pos, feature]}."""

    def touch(site, layer, x, entered=None):
        change = changes.get((site, layer))
        if change is None:
            return x
        return like(change(flat(x)) if entered is None else change(x, entered), x)

    return run_reference(model.module, IDS, touch).logits


def edited_logits(model, *edits, within=None):
    """Of the model as it is without edits, or `within` another block."""
    with torch.inference_mode(), within or (interp.applied(model, *edits) if edits else nullcontext()):
        return model.module(input_ids=torch.from_numpy(IDS)[None], use_cache=False).logits[0].double().numpy()


def agree(model, edit, changes, acts=True):
    mine, theirs = edited_logits(model, edit), reference_logits(model, changes)
    assert np.abs(mine - theirs).max() < 1e-4 * np.abs(theirs).max(), edit
    moved = np.abs(mine - edited_logits(model)).max()
    assert moved > 1e-3 if acts else moved < 1e-4


@pytest.mark.parametrize("site", ["q", "k", "v", "z", "resid"])
def test_every_subspace_edit_equals_the_float64_formula_at_every_site(family, site):
    model = tiny_model(family)
    d = width(model, site)
    u = draw(d)
    basis = draw(3, d, seed=1)
    projector = basis.T @ np.linalg.inv(basis @ basis.T) @ basis
    turned = orthogonal(3)
    put = draw(3, seed=2)
    dual = np.linalg.inv(basis @ basis.T) @ basis
    unit = u / np.linalg.norm(u)
    cases = [
        (RemoveAxis(layer=1, site=site, axis=u), lambda x: x - np.outer(x @ unit, unit)),
        (RemoveAxis(layer=-2, site=site, axis=basis, dose=0.4), lambda x: x - 0.4 * x @ projector),
        (KeepAxis(layer=1, site=site, axis=basis), lambda x: x @ projector),
        (ShiftAxis(layer=1, site=site, axis=unit, deviations=2.0, score_sigma=1.5), lambda x: x + 3 * unit),
        (RotateAxes(layer=1, site=site, axis=basis, rotation=turned),
         lambda x: x + (x @ basis.T @ turned.T - x @ basis.T) @ dual),
        (RotateAxes(layer=1, site=site, axis=np.eye(d), rotation=orthogonal(d)), lambda x: x @ orthogonal(d).T),
        (ReplaceCoordinates(layer=1, site=site, axis=basis, values=put), lambda x: x + (put - x @ basis.T) @ dual),
    ]  # fmt: skip
    count = 3 + (site == "resid")
    for edit, change in cases:
        # The same vector on every key adds one number to all scores of a query: softmax does not see it.
        acts = not (site == "k" and edit.kind == "shift")
        agree(model, edit, {(site, edit.layer % count): change}, acts)


def test_an_edit_of_one_head_leaves_the_others(family):
    model = tiny_model(family)
    for site, head in (("v", 1), ("z", 3), ("q", 2), ("k", 0)):
        u = draw(12, seed=head)
        unit = u / np.linalg.norm(u)
        part, onto = slice(12 * head, 12 * head + 12), np.outer(unit, unit)

        def kept(x, share, part=part, onto=onto):
            x = x.copy()
            x[:, part] = x[:, part] @ (share * np.eye(12) + (1 - 2 * share) * onto)
            return x

        for kind, share in ((RemoveAxis, 1), (KeepAxis, 0)):
            edit = kind(layer=0, site=site, head=head, axis=u)
            agree(model, edit, {(site, 0): lambda x, share=share, kept=kept: kept(x, share)})


def test_heads_blocks_and_layers_equal_the_float64_formula(family):
    model = tiny_model(family)
    means = draw(2, 12)

    def ablated(put):
        def change(x):
            x = x.reshape(len(x), 4, 12).copy()
            x[:, [1, 3]] = put
            return x.reshape(len(x), -1)

        return change

    agree(model, AblateHeads(layer=1, heads=(1, 3)), {("z", 1): ablated(0.0)})
    agree(model, AblateHeads(layer=1, heads=(1, 3), by="mean", mean=means), {("z", 1): ablated(means)})
    agree(model, AttentionOff(layer=1), {("attn_out", 1): np.zeros_like})
    agree(model, FeedForwardOff(layer=-1, dose=0.25), {("mlp_out", 2): lambda x: 0.75 * x})
    agree(model, BypassLayer(layer=1), {("block", 1): lambda left, entered: entered})


def test_an_axis_fitted_on_z_scores_is_removed_obliquely(family):
    model = tiny_model(family)
    d = width(model, "v")
    sigma, w = np.exp(draw(d, seed=3)), draw(d, seed=4)
    w /= np.linalg.norm(w)
    covector, displacement = w / sigma, sigma * w
    assert covector @ displacement == pytest.approx(1)
    change = {("v", 2): lambda x: x - np.outer(x @ covector, displacement)}
    given = RemoveAxis(layer=-1, axis=w, metric="z-scored", sigma=sigma)
    saved = RemoveAxis(
        layer=-1,
        axis=covector / np.linalg.norm(covector),
        metric="z-scored",
        displacement=displacement / np.linalg.norm(displacement),
    )
    agree(model, given, change)
    agree(model, saved, change)
    raw = edited_logits(model, RemoveAxis(layer=-1, axis=w))
    assert np.abs(raw - edited_logits(model, given)).max() > 1e-3


def test_edits_compose_in_the_order_given():
    model = tiny_model("llama")
    u, w = draw(24), draw(24, seed=1)
    unit = u / np.linalg.norm(u)
    remove = RemoveAxis(layer=1, axis=u)
    shift = ShiftAxis(layer=1, axis=u + w, deviations=1.0, score_sigma=2.0)

    def removed(x):
        return x - np.outer(x @ unit, unit)

    def shifted(x):
        return x + 2 * (u + w) / ((u + w) @ (u + w))

    both = {("v", 1): lambda x: shifted(removed(x))}
    assert np.abs(edited_logits(model, remove, shift) - reference_logits(model, both)).max() < 1e-4
    assert np.abs(edited_logits(model, remove, shift) - edited_logits(model, shift, remove)).max() > 1e-3


def test_positions_are_edited_and_others_keep_their_bits():
    model = tiny_model("llama")
    unit = np.eye(24)[0]

    def change(x):
        x = x.copy()
        x[[2, 5], 0] = 0
        return x

    edit = RemoveAxis(layer=0, axis=unit, at=(2, 5))
    assert np.abs(edited_logits(model, edit) - reference_logits(model, {("v", 0): change})).max() < 1e-4
    assert np.array_equal(edited_logits(model, edit)[:2], edited_logits(model, within=listening(model, Listener()))[:2])


def test_dose_0_is_the_unedited_model_bit_for_bit(family):
    model = tiny_model(family)
    d = width(model, "v")
    basis = draw(2, d)
    edits = [
        RemoveAxis(layer=0, axis=basis, dose=0.0),
        KeepAxis(layer=0, site="z", axis=draw(48), dose=0.0),
        ShiftAxis(layer=1, axis=draw(d), deviations=1e6, score_sigma=1.0, dose=0.0),
        RotateAxes(layer=1, site="k", axis=basis, rotation=orthogonal(2), dose=0.0),
        ReplaceCoordinates(layer=2, site="q", axis=draw(48), values=np.array([1e6]), dose=0.0),
        RemoveAxis(layer=(0, -1), site="resid", axis=draw(48), dose=0.0),
        AblateHeads(layer=1, heads=(0, 3), dose=0.0),
        BypassLayer(layer=1, dose=0.0),
        AttentionOff(layer=0, dose=0.0),
        FeedForwardOff(layer=2, dose=0.0),
    ]
    assert np.array_equal(edited_logits(model, *edits), edited_logits(model, within=listening(model, Listener())))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans(), st.floats(-3, 3))
def test_removal_is_idempotent_and_half_a_dose_is_half_the_way(seed, k, oblique, dose):
    info = tiny_model("llama").info
    rng = np.random.default_rng(seed)
    how = {"metric": "z-scored", "sigma": np.exp(rng.normal(size=24))} if oblique else {}
    edit = RemoveAxis(layer=0, axis=rng.normal(size=(k, 24)), **how)
    x = torch.from_numpy(rng.normal(size=(1, 2, 3, 24)))
    rows = EditedRows(torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.int64))
    (step,) = make_steps([[edit]], info)
    once = step.apply(x, rows)
    assert torch.allclose(step.apply(once, rows), once, atol=1e-8)
    assert torch.allclose(once @ torch.from_numpy(edit.covectors).T, torch.zeros(()).double(), atol=1e-8)
    (partly,) = make_steps([[RemoveAxis(layer=0, axis=edit.axis, dose=dose, **how)]], info)
    assert torch.allclose(partly.apply(x, rows), x + dose * (once - x), atol=1e-9)


def test_negative_zero_survives_dose_0_and_wrong_positions_are_refused():
    (step,) = make_steps([[RemoveAxis(layer=0, axis=np.ones(24), dose=0.0)]], tiny_model("llama").info)
    x = torch.full((1, 1, 2, 24), -0.0, dtype=torch.float64)
    rows = EditedRows(torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=torch.int64))
    assert torch.signbit(step.apply(x, rows)).all()
    with pytest.raises(InterpError, match="text 1 of the pass has 9 tokens"):
        edited_logits(tiny_model("llama"), RemoveAxis(layer=0, axis=np.ones(24), at=(9,)))
    with pytest.raises(UsageError, match="no edit is named"), interp.applied(tiny_model("llama")):
        pass


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_after_an_exception_or_an_interruption(family, stop):
    model = tiny_model(family)
    before = edited_logits(model)
    edits = [RemoveAxis(layer=0, site="resid", axis=draw(48)), BypassLayer(layer=1), AttentionOff(layer=2)]
    with pytest.raises(stop), interp.applied(model, *edits):
        assert np.abs(edited_logits(model) - before).max() > 1e-3
        raise stop
    assert np.array_equal(edited_logits(model), before)
    assert n_hooks(model.module) == 0


EACH_ONCE = "Name one or several of these, each once; −1 is the last."
REFUSED = [
    (lambda: RemoveAxis(layer=3, axis=np.ones(24)),
     "remove v at layer 3: tiny-llama has the layers 0 to 2\n  " + EACH_ONCE),
    (lambda: RemoveAxis(layer=-5, site="resid", axis=np.ones(48)),
     "remove resid at layer -5: tiny-llama has the depths 0 to 3\n  " + EACH_ONCE),
    (lambda: BypassLayer(layer=(2, -1)),
     "bypass block at layer 2, -1: tiny-llama has the layers 0 to 2\n  " + EACH_ONCE),
    (lambda: AblateHeads(layer=0, heads=(4,)),
     "ablate z at layer 0: there is no head 4: z of tiny-llama has 4 heads of 12 features\n"
     "  Name a head from 0 to 3."),
    (lambda: RemoveAxis(layer=0, head=3, axis=np.ones(12)),
     "remove v at layer 0: there is no head 3: v of tiny-llama has 2 KV heads of 12 features\n"
     "  Name a head from 0 to 1. Each serves 2 query heads, which are separate in q and z."),
    (lambda: RemoveAxis(layer=0, head=0, axis=np.ones(6)),
     "remove v at layer 0: the axis has 6 features, v of tiny-llama has 2 KV heads of 12 features\n"
     "  Fit the axis on this site."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(48)),
     "remove v at layer 0: the axis has 48 features, v of tiny-llama has 2 KV heads of 12 features, 24 in all\n"
     "  Fit the axis on this site."),
    (lambda: RemoveAxis(layer=0, site="attn_out", head=1, axis=np.ones(12)),
     "remove attn_out: after the output projection every feature mixes all heads: no slice of it belongs to one head\n"
     "  Edit z, the head outputs before it."),
    (lambda: RemoveAxis(layer=0, site="resid", head=1, axis=np.ones(12)),
     "remove resid at layer 0: the residual stream has no heads\n"
     "  Leave out the head, or edit z before W_O mixes them."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), dose=float("nan")),
     "remove v at layer 0: the dose is nan\n"
     "  A dose is a finite number up to 1,000,000, either way: 1 is the edit, 0 no edit."),
    (lambda: RemoveAxis(layer=0, axis=np.full(24, np.nan)),
     "remove v at layer 0: axis is not finite\n  Look where NaN or infinity came from."),
    (lambda: RemoveAxis(layer=0, axis=np.zeros(24)),
     "remove v at layer 0: the axis is zero, or its displacement does not change its coordinate\n"
     "  Leave out axes that are zero or combinations of others."),
    (lambda: RemoveAxis(layer=0, axis=np.ones((2, 24))),
     "remove v at layer 0: the 2 axes do not span 2 dimensions\n"
     "  Leave out axes that are zero or combinations of others."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), metric="z-scored"),
     "remove v at layer 0: the metric is z-scored and neither sigma nor displacement is given\n"
     "  z-scored takes one of sigma and displacement; raw takes neither."),
    (lambda: RotateAxes(layer=0, axis=np.eye(24)[:2], rotation=np.ones((2, 2))),
     "rotate v at layer 0: the rotation is not orthogonal: R Rᵀ is off by 2.0e+00\n  Take R from a QR."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), at="last"),
     "remove v at layer 0 at 'last': the prompts of the forward passes are not known here\n"
     "  Use interp.collect(model, prompts, needs, edits=[...]), or positions counted from 0."),
    (lambda: ReplaceCoordinates(layer=0, axis=np.eye(24)[:1], values=np.ones((3, 1))),
     "replace v at layer 0 with 3 rows of values: it is not known here which row belongs to which prompt\n"
     "  Use interp.collect(model, prompts, needs, edits=[...]), or give one row for all."),
    (lambda: RemoveAxis(layer=(), axis=np.ones(24)),
     "remove v at no layer: no layer is named\n  Name one layer or several."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), at=(-1,)),
     "remove v at layer 0: the positions are (-1,)\n"
     "  Use all, last, scored, a column, or positions counted from 0."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), metric="z-scored", sigma=-np.ones(24)),
     "remove v at layer 0: sigma has the shape (24,)\n  Give one deviation, not below 0, for every feature."),
    (lambda: RemoveAxis(layer=0, axis=np.ones(24), metric="z-scored", displacement=np.ones(12)),
     "remove v at layer 0: the axis has the shape (24,), its displacement (12,)\n  Give both the same shape."),
    (lambda: RemoveAxis(layer=0, axis=np.full(24, 1e200)),
     "remove v at layer 0: the axis is too long to be computed with\n  Give it a length near 1."),
    (lambda: ShiftAxis(layer=0, axis=np.eye(24)[:2], deviations=1.0, score_sigma=1.0),
     "shift v at layer 0: there are 2 axes\n  Shift along one axis at a time; edits compose."),
    (lambda: ShiftAxis(layer=0, axis=np.ones(24), deviations=1.0, score_sigma=-1.0),
     "shift v at layer 0: the shift is 1.0 times -1.0\n  Both are finite, the deviation not below 0."),
    (lambda: ReplaceCoordinates(layer=0, axis=np.eye(24)[:1], values=np.ones((3, 2))),
     "replace v at layer 0: the values have 2 columns for 1 axes\n  Give one value for every axis."),
    (lambda: AblateHeads(layer=0, heads=(1, 1)),
     "ablate z at layer 0: the heads are [1, 1]\n  Name one or several heads, each once."),
    (lambda: AblateHeads(layer=0, heads=(1,), mean=np.ones((1, 12))),
     "ablate z at layer 0: by = 'zero' with means of 1 heads\n  Give means with by='mean', one a head."),
    (lambda: AblateHeads(layer=0, heads=(1,), by="mean", mean=np.ones((1, 6))),
     "ablate z at layer 0: the means have 6 features\n  A head has 12."),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_words_before_any_pass(make, words):
    with pytest.raises(UsageError) as refused, interp.applied(tiny_model("llama"), make()):
        pass
    assert str(refused.value) == words


def test_two_edits_that_differ_in_a_field_read_differently():
    edit = interp.AblateHeads(layer=3, heads=(1, 2))
    changes = (
        {"heads": 1},
        {"by": "mean"},
        {"by": "resample", "seed": 4},
        {"dose": 0.5},
        {"at": "last"},
        {"at": (0, 5)},
    )
    others = [str(replace(edit, **change)) for change in changes]
    assert str(edit) == "ablate z at layer 3, heads 1, 2"
    assert others[3] == "ablate z at layer 3, dose 0.5, heads 1, 2" and len({str(edit), *others}) == 1 + len(changes)
    shifts = [
        interp.ShiftAxis(layer=0, axis=axis, deviations=d, score_sigma=1.0, head=h)
        for axis in np.eye(3)[:2] for d in (1.0, 2.0) for h in (0, 1)
    ]  # fmt: skip
    assert len({*map(str, shifts)}) == 8 and "[" not in str(shifts[0])
    kept = [interp.KeepAxis(layer=0, axis=axis) for axis in (np.array([0, 1]), np.float32([0, 1]))]
    assert len({*map(str, kept)}) == 1, "the same numbers are the same axis"
    donor = interp.PatternsOf(donor="tunnel:bijection-gpt-neox@256", dose=0.5)
    assert str(donor) == "patterns qk at all layers from tunnel:bijection-gpt-neox@256, dose 0.5"


def test_what_would_not_name_the_edits_of_a_block_is_refused_inside_it():
    model = interp.load("tunnel:bijection-gpt-neox")
    run = partial(interp.run, model, probes="orthogonality", n_pool=20, out=None, quiet=True)
    plain = str(run()["orthogonality"])
    for make in (run, partial(interp.generate, model, interp.sampled_prompts(model.task, 3))):
        with (
            interp.applied(model, AttentionOff(layer=1)),
            pytest.raises(UsageError, match=r"inside a block of interp.applied: .*edited model \(attention-off"),
        ):
            make()
    assert str(run()["orthogonality"]) == plain
