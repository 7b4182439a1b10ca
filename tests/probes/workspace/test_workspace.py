"""The probe `workspace`: its J-space is autograd's, a planted space is found, noise is not, and it asks for a lens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from interp.probes.measures.cloud import Cloud
from interp.probes.workspace import Workspace
from interp.probes.workspace.probe import STREAM, _Held, _Setting
from interp.probes.workspace.space import Spectrum, shares
from scipy import stats

import interp
from interp.errors import UsageError
from interp.reading.lens import Lens
from interp.testing import Shape, synthetic_capture
from tests.quick import quick

D, RANK, N_OUTCOMES = 24, 6, 5
SMALL = Workspace(n_null=39)


def planted(seed: int, *, inside: bool) -> interp.Findings:
    """A J-space of six directions; hypotheses and what is known of them lie in it, or in its complement."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((D, D)))[0]
    space = axes[:, :RANK]
    gram = space @ space.T
    home = space if inside else axes[:, RANK : 2 * RANK]
    shape = Shape(n_prompts=120, d_model=D, n_layers=2, n_outcomes=N_OUTCOMES)
    possible = rng.random((120, N_OUTCOMES)) < 0.5
    possible[~possible.any(axis=1), 0] = True
    posterior = possible / possible.sum(axis=1, keepdims=True)
    entropy = -(posterior * np.log2(np.where(possible, posterior, 1.0))).sum(axis=1)
    embedding = rng.standard_normal((N_OUTCOMES, RANK)) @ home.T
    rows = possible @ embedding + 0.3 * rng.standard_normal((120, D))
    capture = synthetic_capture(
        SMALL.needs, shape, posterior=posterior, columns={"next_entropy_bits": entropy}, seed=seed,
        planted={"resid": np.array([rows] * 3), "readout_gram": np.array([gram] * 3), "outcome_embedding": embedding},
    )  # fmt: skip
    return SMALL.analyse(capture, {})


def test_hypotheses_planted_in_the_j_space_are_found_and_in_its_complement_are_not():
    within, without = planted(0, inside=True), planted(0, inside=False)
    assert within["dimension"].value == RANK
    assert within["overlap"].value == pytest.approx(1.0) and without["overlap"].value == pytest.approx(0.0, abs=1e-12)
    assert within["overlap"].null.value == pytest.approx(RANK / D, abs=0.03)
    for name in ("overlap", "survivors_accuracy", "uncertainty_r2", "variance_share"):
        assert within[name].p == pytest.approx(1 / 40), name
        assert without[name].p > 0.5, name
    assert within["survivors_accuracy"].value > 0.9 > within["survivors_accuracy"].null.value
    table = within.tables["by_depth"]
    assert table["whole_accuracy"][0] == pytest.approx(within["survivors_accuracy"].value, abs=0.05)
    by_rank = within.tables["by_rank"]
    np.testing.assert_allclose(by_rank["overlap"] * D / by_rank["rank"], by_rank["times_random"])


@pytest.mark.parametrize("inside", [True, False])
def test_direction_of_uncertainty_is_found_in_the_j_space_only_where_it_is_planted_there(inside):
    """Among directions that are equally loud: a direction that decodes shuffled entropies lies anywhere."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.standard_normal((D, D)))[0]
    entropy = rng.uniform(0, 3, 200)
    rows = rng.standard_normal((200, D)) + 2.0 * np.outer(entropy, axes[:, 0 if inside else -1])
    capture = synthetic_capture(
        SMALL.needs, Shape(n_prompts=200, d_model=D, n_layers=1), columns={"next_entropy_bits": entropy},
        planted={"resid": np.array([rows] * 2), "readout_gram": np.array([axes[:, :RANK] @ axes[:, :RANK].T] * 2)},
    )  # fmt: skip
    found = SMALL.analyse(capture, {})["axis_share"]
    assert (found.p == pytest.approx(1 / 40)) == inside
    assert (found.value > 0.8) if inside else (found.value < 0.1)


def test_directions_of_shuffled_entropies_vary_as_one_direction_does():
    """Of a random one six of 24 dimensions hold a share that is Beta(3, 9); a mean over half splits varies less."""
    rng = np.random.default_rng(4)
    entropy, rows = rng.uniform(0, 3, 200), rng.standard_normal((200, D))
    rows[:, 0] += 2.0 * entropy
    space = np.linalg.qr(rng.standard_normal((D, RANK)))[0]
    capture = synthetic_capture(
        SMALL.needs, Shape(n_prompts=200, d_model=D, n_layers=1), columns={"next_entropy_bits": entropy},
        planted={"resid": np.array([rows] * 2), "readout_gram": np.array([space @ space.T] * 2)},
    )  # fmt: skip
    null = replace(SMALL, n_null=300).analyse(capture, {})["axis_share"].null
    assert np.ptp(null.band) == pytest.approx(np.ptp(stats.beta.interval(0.95, 3, 9)), rel=0.15)
    assert null.value == pytest.approx(RANK / D, abs=0.03)


def test_what_a_subspace_decodes_is_a_ridge_readout_of_the_rows_in_it():
    """Half splits, ridge and R² written out; a shuffled space is one of them in single precision."""
    rng = np.random.default_rng(8)
    entropy = rng.uniform(0, 3, 60)
    rows = rng.standard_normal((2, 60, D)) * np.geomspace(30, 0.1, D) + 100.0
    rows[:, :, 3] += entropy
    capture = synthetic_capture(
        SMALL.needs, Shape(n_prompts=60, d_model=D, n_layers=1), columns={"next_entropy_bits": entropy},
        planted={"resid": rows},
    )  # fmt: skip
    pool = Cloud.of(capture, STREAM)
    setting = _Setting.of(pool, np.empty((0, D)), np.empty((60, 0), dtype=bool), 19, 0)

    def r2(points, space, half_split):
        x, fitted, held_out = points.astype(np.float64) @ space, half_split.fitting, half_split.held_out
        x, y = x - x[fitted].mean(axis=0), entropy - entropy[fitted].mean()
        gram = x[fitted].T @ x[fitted]
        penalty = 1e-3 * np.trace(gram) / min(len(fitted) - 1, len(gram))
        said = x @ np.linalg.solve(gram + penalty * np.eye(len(gram)), x[fitted].T @ y[fitted])
        return 1 - np.square(y - said)[held_out].sum() / np.square(y[held_out]).sum()

    spaces = [np.linalg.qr(rng.standard_normal((D, rank)))[0] for rank in (5, 8)]
    generator = np.random.default_rng([0, 2, 7])
    order, sign = generator.permutation(D), generator.choice([-1.0, 1.0], (D, 1))
    drawn = setting.shuffled(7, spaces)
    for points, space, held in zip(pool.points, spaces, drawn, strict=True):
        space = sign * space[order]
        expected = [r2(points, space, half_split) for half_split in setting.half_splits]
        own = _Held.of(points - points.mean(axis=0, dtype=np.float64), space, setting)
        np.testing.assert_allclose(own.decoded[:, 0], expected, rtol=1e-9)
        np.testing.assert_allclose(held.decoded[:, 0], expected, atol=1e-4)
        np.testing.assert_allclose(held.of_unit, own.of_unit, rtol=1e-4)


@pytest.mark.parametrize("frame", quick(["values"], ["keys", "values"]))
def test_the_frame_may_be_what_keys_read_or_heads_write_of_the_hypotheses(frame):
    """Embeddings lie outside the J-space; what heads of the first layer make of them lies inside, by construction."""
    rng = np.random.default_rng(5)
    probe, shape = replace(SMALL, frame=frame), Shape(n_prompts=120, d_model=D, n_layers=2, n_outcomes=N_OUTCOMES)
    axes = np.linalg.qr(rng.standard_normal((D, D)))[0]
    space, outside = axes[:, :RANK], axes[:, RANK:]
    embedding = rng.standard_normal((N_OUTCOMES, D - RANK)) @ outside.T
    mixed = space + outside[:, :RANK]  # keys read a direction within together with one outside
    n_kv, n_heads, width = shape.n_kv_heads, shape.n_heads, shape.d_head
    weights = {"W_K": mixed @ rng.standard_normal((n_kv, RANK, width)), "W_V": rng.standard_normal((n_kv, D, width)),
               "W_O": rng.standard_normal((n_heads, width, RANK)) @ space.T}  # fmt: skip
    planted = {site: np.stack([w, rng.standard_normal(w.shape)]) for site, w in weights.items()}
    planted |= {"readout_gram": np.array([space @ space.T] * 3), "outcome_embedding": embedding}
    found = [
        probe.analyse(synthetic_capture(probe.needs, shape, planted=planted, seed=5), {})["overlap"].value
        for probe in (SMALL, probe)
    ]
    written = sum(weights["W_V"][h * n_kv // n_heads] @ weights["W_O"][h] for h in range(n_heads))
    through = written if frame == "values" else sum(w @ w.T for w in weights["W_K"])
    rows = (embedding - embedding.mean(axis=0)) @ through
    assert found == pytest.approx([0.0, shares(rows, space).mean()], abs=1e-6) and found[1] > 0.4


@pytest.mark.slow
def test_texts_have_no_hypotheses_and_say_so():
    capture = synthetic_capture(SMALL.needs, Shape(n_prompts=60))
    nothing = {SMALL.needs[2]: {"rows": np.empty((0, 32), np.float32)}}
    found = SMALL.analyse(replace(capture, posterior=None, arrays={**capture.arrays, **nothing}), {})
    for name in ("overlap", "survivors_accuracy"):
        assert np.isnan(found[name].value) and "no exact posterior" in found[name].interval_reason
    assert np.isfinite(found["uncertainty_r2"].value) and "by_rank" not in found.tables


@pytest.fixture(scope="module")
def through():
    model = interp.load("tunnel:recall-gpt-neox")
    lens = interp.fit_lens(model, interp.sampled_prompts(model.task, 12), precision_bits=0.0, quiet=True)
    return lens.on(model)


def test_gram_of_a_model_is_that_of_its_tokens_logits_by_autograd(through):
    """Behind the last block the logits' own derivative, but for the scale of the norm; before it through the lens."""
    prompts = interp.sampled_prompts(through.task, 3)
    found = interp.collect(through, prompts, ["readout_gram", "resid"])
    gram, d = found["readout_gram"].astype(np.float64), through.info.d_model
    x = torch.from_numpy(found["resid"][-1, 0])
    every, outcomes = torch.arange(through.info.vocab_size), torch.from_numpy(prompts.outcome_ids)
    for tokens, mine in ((outcomes, gram[-1]), (every, Lens(through).token_gram(d).double().numpy())):
        directions = Lens(through).direction(x.expand(len(tokens), d), tokens).double().numpy()
        directions -= directions.mean(axis=0)
        own = directions.T @ directions
        scale = float((mine * own).sum() / np.square(own).sum())
        np.testing.assert_allclose(mine, scale * own, atol=1e-4 * np.abs(mine).max())
    for depth in range(through.info.n_layers):
        j = through.lens.matrices[depth].double().numpy()
        np.testing.assert_allclose(gram[depth], j.T @ gram[-1] @ j, atol=1e-4 * np.abs(gram[depth]).max())


def test_a_run_names_its_hypotheses_and_wants_a_lens(through):
    prompts = interp.sampled_prompts(through.task, 3)
    found = interp.collect(through, prompts, ["outcome_embedding"])["outcome_embedding"]
    weight = through.module.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(found, weight[prompts.outcome_ids])
    record = interp.run(through, probes=[Workspace(n_null=19)], n_pool=40, out=None, quiet=True)
    found = record.findings["workspace"]
    assert found["overlap"].n == len(through.task.sample(np.random.default_rng(0), 1).slice_ids)
    assert {figure.name for figure in Workspace().figures(found)} >= {"overlap", "uncertainty_r2", "axis_share"}
    with pytest.raises(UsageError, match="this model has no Jacobian lens: fit one"):
        interp.run("tunnel:recall-gpt-neox", probes="workspace", n_pool=20, out=None, quiet=True)


def test_spectrum_counts_the_directions_that_hold_nine_tenths():
    values = np.array([5.0, 3.0, 1.0, 0.6, 0.4])
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    found = Spectrum.of(axes * values @ axes.T)
    np.testing.assert_allclose(found.values, values)
    assert found.rank == 3
    np.testing.assert_allclose(shares(axes.T, found.space(3)), [1, 1, 1, 0, 0], atol=1e-12)
