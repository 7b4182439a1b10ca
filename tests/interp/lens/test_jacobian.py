"""The Jacobian lens is the mean of autograd's own full Jacobian, whatever the family; its estimates have no bias."""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from torch.autograd.functional import jacobian

import interp
from interp.hooks.attention import attention_function
from interp.hooks.window import AttentionWindow
from interp.lens.fit import fit_lens, fit_prompts
from interp.lens.held import HeldOut
from interp.lens.jacobian import BLOCK, JacobianSums, Valid, fit_jacobian, orthogonal, pulled_back, steps_of, stream_of
from interp.lens.kinds import FittedLens
from interp.options import RunOptions
from interp.prompt import Prompt, PromptSet
from interp.reading.batches import make_batch
from tests.interp.test_families import CONFIGS, tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, prompts_of

LENGTHS = (6, 7, 9)


def some_ids(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    return [rng.integers(3, VOCAB, n) for n in lengths]


def autograd_jacobian(model, ids, depth, valid):
    """J of one prompt at one depth, by autograd through the family's own eager attention, with loops over positions."""
    places = range(valid.first, len(ids) - valid.last)
    blocks = model.family.layer_modules(model.module)
    found = {}

    def replaced(module, args, kwargs):
        found["input"] = args[0] if args else kwargs["hidden_states"]
        x = found.get("put", found["input"])
        return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": x})

    def end(module, args):
        found["final"] = args[0]

    handles = [
        blocks[depth].register_forward_pre_hook(replaced, with_kwargs=True),
        model.family.behind_blocks(model.module).register_forward_pre_hook(end),
    ]
    tokens = torch.from_numpy(ids)[None]

    def final(x):
        found["put"] = x[None]
        model.module(input_ids=tokens, use_cache=False)
        return found["final"][0]

    with attention_function(model, "eager"):
        model.module(input_ids=tokens, use_cache=False)
        every = jacobian(final, found["input"][0].detach())  # [pos, d_model, pos, d_model]
    for handle in handles:
        handle.remove()
    pairs = [every[target, :, source] for source in places for target in places if target >= source + valid.horizon]
    return torch.stack(pairs).sum(dim=0) / len(places)


def exact(model, ids, valid, repeat=16):
    batch = make_batch(ids, np.arange(len(ids)), model.input_device)
    eye = torch.eye(model.info.d_model)
    return pulled_back(stream_of(model, batch.repeated(repeat)), valid.mask(batch), eye, repeat, valid.horizon)


@pytest.mark.parametrize("family", quick(["llama", "gpt2", "gpt_oss"], [*FAMILIES, *CONFIGS]))
def test_j_of_every_family_is_the_mean_of_autograds_full_jacobian(family):
    model = fresh_model(family) if family in FAMILIES else tiny(family)
    ids, valid, depth = some_ids((6, 8)), Valid(1, 1), 1
    found = exact(model, ids, valid)
    expected = torch.stack([autograd_jacobian(model, x, depth, valid) for x in ids]).mean(dim=0)
    assert found.shape == (model.info.n_layers, 48, 48)
    np.testing.assert_allclose(found[depth], expected, atol=2e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("horizon", quick([2], [1, 2]))
def test_with_a_horizon_nearer_targets_are_left_out(horizon):
    model, ids, valid = fresh_model("llama"), some_ids((6, 8)), Valid(1, 1, horizon)
    expected = torch.stack([autograd_jacobian(model, x, 1, valid) for x in ids]).mean(dim=0)
    np.testing.assert_allclose(exact(model, ids, valid)[1], expected, atol=2e-4 * float(expected.abs().max()))
    assert not np.allclose(exact(model, ids, Valid(1, 1))[1], expected, atol=0.1 * float(expected.abs().max()))


def test_j_is_the_same_in_whatever_batch_of_cotangents():
    model, valid = fresh_model("llama"), Valid(0, 0)
    whole = exact(model, some_ids(), valid)
    alone = torch.stack([exact(model, [x], valid, repeat=48) for x in some_ids()]).mean(dim=0)
    np.testing.assert_allclose(alone, whole, atol=1e-4 * float(whole.abs().max()))
    _, rounds = rounds_of(fresh_model("llama"))
    steps = [step for each in rounds for step in each]
    met = {(group, tuple(batch.prompts), block) for group, batch, block in steps}
    assert len(met) == len(steps) == len({(g, p) for g, p, _ in met}) * -(-48 // BLOCK)


def test_edits_and_windows_act_in_the_fit():
    model, valid = fresh_model("gpt_neox"), Valid(0, 0)
    every = [interp.AttentionOff(layer=layer) for layer in range(3)]
    with interp.applied(model, *every):
        off = exact(model, some_ids(), valid)
    with interp.listening(model, AttentionWindow(1)):
        windowed = exact(model, some_ids(), valid)
    assert not np.allclose(off, exact(model, some_ids(), valid), atol=1e-3)
    assert not np.allclose(windowed, exact(model, some_ids(), valid), atol=1e-3)
    shuffled = [x[np.random.default_rng(1).permutation(len(x))] for x in some_ids()]
    with interp.applied(model, *every):
        one_by_one = exact(model, shuffled, valid)  # without attention the order is nothing
    np.testing.assert_allclose(one_by_one, off, atol=1e-4)


@cache
def rounds_of(model):
    ids = some_ids((6,) * 4 + (7,) * 5)
    groups = np.arange(len(ids)) % 3
    return ids, steps_of(model, ids, groups, np.arange(len(ids)), 20, np.random.default_rng(0))


class Nothing(HeldOut):
    def __init__(self):
        pass

    def kl_bits(self, carried):
        return np.zeros((3, 2))


def fitted(model, seed, n_rounds=None):
    _, rounds = rounds_of(model)
    sums, _ = fit_jacobian(
        model, rounds[:n_rounds], Nothing(), valid=Valid(0, 0), seed=seed,
        progress=lambda done, total: None,
    )  # fmt: skip
    return sums.mean()


def test_a_fit_that_goes_to_its_end_is_exact_and_one_that_stops_has_no_bias():
    model = fresh_model("llama")
    ids, _ = rounds_of(model)
    whole = exact(model, ids, Valid(0, 0))
    np.testing.assert_allclose(fitted(model, 3), whole, atol=1e-4 * float(whole.abs().max()))
    blocks = [torch.from_numpy(q) for seed in range(400) for q in [orthogonal(48, seed).numpy()[:BLOCK]]]
    sums = JacobianSums(1, 1, 48)
    for q in blocks:
        sums.add(0, (q @ whole[1])[None], q, 1)
    size = float(whole[1].norm())
    assert float((sums.mean()[0] - whole[1]).norm()) < 0.1 * size
    one = JacobianSums(1, 1, 48)
    one.add(0, (blocks[0] @ whole[1])[None], blocks[0], 1)
    assert float((one.mean()[0] - whole[1]).norm()) > 0.3 * size


def test_the_lens_of_a_linear_network_is_the_truth_at_every_depth():
    """Blocks that add a fixed linear map of each position: J carries the stream to the final one exactly."""
    model = fresh_model("gpt_neox", num_hidden_layers=3)
    rng = torch.Generator().manual_seed(0)
    for layer in model.family.layer_modules(model.module):
        matrix = torch.randn(48, 48, generator=rng) / 20
        layer.forward = lambda hidden_states, matrix=matrix, **_: hidden_states + hidden_states @ matrix.mT
    batch = make_batch(some_ids(), np.arange(3), model.input_device)
    stream = stream_of(model, batch)
    found = exact(model, some_ids(), Valid(0, 0))
    lens = FittedLens("jacobian", model.name, 3, 48, matrices=dict(enumerate(found)))
    for depth in range(3):
        carried = lens.carried(stream[depth].detach(), depth)
        torch.testing.assert_close(carried, stream[-1].detach(), atol=1e-4, rtol=1e-3)
        assert (stream[depth] - stream[-1]).abs().max() > 0.1


@pytest.mark.slow
def test_the_error_covers_what_other_prompts_give(tunnel):
    """Half of the prompts each: the mean KL of the two lenses differs by a few standard errors at most."""
    prompts = interp.sampled_prompts(tunnel.task, 60)
    asked = fit_prompts(tunnel, RunOptions(prompts=prompts))
    held, found = asked.held_out(tunnel), []
    for part in (asked.fitted[::2], asked.fitted[1::2]):
        chosen = prompts[np.concatenate([part, asked.held[:4]])]
        lens = fit_lens(tunnel, chosen, precision_bits=0.0, quiet=True)
        found.append((held.kl_of(lens).mean(axis=1), np.array([lens.error_bits[depth] for depth in range(3)])))
    (one, error), (other, error_of_other) = found
    z = (one - other) / np.hypot(error, error_of_other)
    assert (np.abs(z) < 5).all() and (error > 0).all()


def test_a_fit_stops_at_the_precision_asked_for_and_wants_long_prompts(tunnel):
    prompts = interp.sampled_prompts(tunnel.task, 30)
    early = fit_lens(tunnel, prompts, precision_bits=5.0, quiet=True)
    late = fit_lens(tunnel, prompts, precision_bits=0.0, quiet=True)
    assert max(early.error_bits.values()) <= 5.0 and early.n_prompts <= late.n_prompts == 24
    assert fit_lens(tunnel, prompts, seconds=0.0, quiet=True).n_prompts > 0
    few = PromptSet("few", [Prompt(token_ids=(1, 2, 3), scored=(2,))] * 4)
    with pytest.raises(interp.InterpError, match="more than 9 tokens"):
        fit_prompts(tunnel, RunOptions(prompts=few), 9)


@contextmanager
def finer_numbers():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("around", [torch.inference_mode, torch.no_grad, finer_numbers])
def test_a_fit_is_the_same_whatever_the_caller_has_set(around):
    model, how = fresh_model("llama"), {"skip_first": 0, "precision_bits": 9.0, "quiet": True}
    prompts = prompts_of(*some_ids((9,) * 12))
    expected = fit_lens(model, prompts, **how)
    with around():
        found = fit_lens(model, prompts, **how)
    for depth, matrix in expected.matrices.items():
        torch.testing.assert_close(found.matrices[depth], matrix)


def test_a_fit_does_not_take_up_what_was_fitted_under_other_edits(tunnel, tmp_path, monkeypatch):
    prompts, out = interp.sampled_prompts(tunnel.task, 30), tmp_path / "lens.safetensors"
    monkeypatch.setattr("interp.records.unfinished.SECONDS", 0.0)
    monkeypatch.setattr("interp.lens.jacobian.JacobianSums.error_bits", stop)
    with pytest.raises(KeyboardInterrupt), interp.applied(tunnel, interp.AttentionOff(layer=1)):
        fit_lens(tunnel, prompts, out=out, quiet=True)
    monkeypatch.undo()
    assert [*tmp_path.rglob("*.zip")]
    lens, anew = (fit_lens(tunnel, prompts, precision_bits=0.05, out=each, quiet=True) for each in (out, None))
    assert all(torch.equal(lens.matrices[depth], anew.matrices[depth]) for depth in anew.depths)
    assert "edits" not in lens.about


def stop(*_):
    raise KeyboardInterrupt
