"""Compiled programs against Tracr's own activations and interpreter, their stated mechanism, and their noise."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from interp.wind_tunnels.programs.commands import app
from interp.wind_tunnels.programs.noise import Noise, write_noisy
from interp.wind_tunnels.programs.task import (
    BEGINNING,
    Program,
    evaluate,
    read_card,
    read_program,
    true_directions,
)
from typer.testing import CliRunner

import interp
from interp.errors import ModelError, UnknownName, UsageError
from interp.loading.sources import shipped_programs
from tests.quick import quick

NAMES = tuple(shipped_programs())
TRACR = np.load(Path(__file__).with_name("tracr.npz"))
"""What Tracr computed on three drawn inputs of each program: `make_reference.py`."""


def _reference(name: str, what: str):
    return json.loads(str(TRACR[f"{name}/{what}"]))


def _streams(module: torch.nn.Module, ids: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The residual stream before the first block and behind every part, as Tracr counts; and the logits."""
    found: list[np.ndarray] = []
    hooks = []
    for i, block in enumerate(module.layers):  # pyrefly: ignore
        if i == 0:
            hooks.append(block.register_forward_pre_hook(lambda m, args: found.append(args[0].numpy())))
        hooks.append(block.attn.register_forward_hook(lambda m, args, out: found.append(found[-1] + out.numpy())))
        hooks.append(block.register_forward_hook(lambda m, args, out: found.append(out.numpy())))
    with torch.inference_mode():
        logits = module(input_ids=torch.from_numpy(ids)).logits.numpy()
    for hook in hooks:
        hook.remove()
    return found, logits


def _same(a: object, b: object) -> bool:
    return a == b or (isinstance(a, int | float) and isinstance(b, int | float) and abs(a - b) < 1e-9)


def _accuracy(module: torch.nn.Module, program: Program) -> float:
    drawn = program.sample(np.random.default_rng(3), 200)
    _, logits = _streams(module, drawn.tokens)
    return float((logits[:, drawn.scored].argmax(-1) == drawn.targets).mean())


@pytest.mark.parametrize("name", NAMES)
def test_residuals_and_variables_equal_those_of_tracr(name):
    card = read_program(name)
    words = card["tokens"]
    ids = np.array([[words.index(token) for token in (BEGINNING, *row)] for row in _reference(name, "inputs")])
    found, _ = _streams(interp.load(f"program:{name}", check=False).module, ids)
    theirs = TRACR[f"{name}/residuals"]
    np.testing.assert_allclose(np.stack(found, axis=1), theirs, atol=1e-5)
    for row, theirs in zip(_reference(name, "inputs"), _reference(name, "variables"), strict=True):
        ours = list(evaluate(read_program(name), row).values())
        # Labels count nodes of one process, so variables are compared as a set of columns.
        for values in theirs.values():
            assert any(all(map(_same, values, mine)) for mine in ours)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_passes_the_self_check_and_its_network_gives_its_exact_answers(name):
    model = interp.load(f"program:{name}")
    assert all(check.passed for check in model.checks)
    assert _accuracy(model.module, Program(name)) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_ablating_a_head_changes_the_stream_exactly_where_the_card_says_it_is_not_idle(name):
    model = interp.load(f"program:{name}", check=False)
    drawn = Program(name).sample(np.random.default_rng(0), 20)
    size = model.info.d_head
    for layer, block in enumerate(model.module.layers):
        for head in range(model.info.n_heads):
            before, _ = _streams(model.module, drawn.tokens)
            weight = block.attn.o_proj.weight.data
            kept = weight.clone()
            weight[:, head * size : (head + 1) * size] = 0
            after, _ = _streams(model.module, drawn.tokens)
            weight.copy_(kept)
            is_idle = [layer, head] in model.card["idle_heads"]
            assert is_idle == all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", quick(["chain", "evidence"], NAMES))
def test_swapping_any_variable_anywhere_gives_the_answers_that_its_rules_give(name):
    """Every variable at every depth where it stands, at the scored positions, by the edit of the package."""
    model = interp.load(f"program:{name}", check=False)
    prompts = interp.sampled_prompts(model.task, n=20, seed=1)
    mechanism, donor = model.mechanism, np.roll(np.arange(20), 1)
    assert mechanism is not None
    base = interp.collect(model, prompts, ["resid"])
    tokens, scored = np.array([p.token_ids for p in prompts]), np.array(prompts.prompts[0].scored)
    own = base.posterior.argmax(axis=1).reshape(20, -1)
    rows = (donor[:, None] * len(scored) + np.arange(len(scored))).ravel()
    moved = set()
    for variable, axes in mechanism.directions.items():
        for depth in range(mechanism.first_depth(variable), model.info.n_layers + 1):
            exact = mechanism.swapped(variable, depth, tokens, tokens[donor], scored)
            values = base["resid"][depth][rows] @ axes.T
            edit = interp.ReplaceCoordinates(layer=depth, site="resid", axis=axes, values=values, at="scored")
            under = interp.collect(model, prompts, ["outcome_log_prob"], edits=[edit])
            np.testing.assert_array_equal(under["outcome_log_prob"].argmax(axis=1).reshape(20, -1), exact)
            if (exact != own).any():
                moved.add(variable)
                assert mechanism.is_read(variable, depth)
    assert mechanism.variable("answer") in moved or name == "selector_width"  # which is the same for all inputs


def test_values_are_computed_or_given_and_samples_carry_them_with_units():
    card = read_program("evidence")
    after = evaluate(card, ["h", "h", "t"], {"heads_2": [5, 5, 5]})
    assert after["evidence_1"] == [5, 5, 4] and after["tails_3"] == [0, 0, 1]
    program = Program("elimination")
    prompts = interp.sampled_prompts(program, n=5)
    assert set(program.columns) <= set(prompts.units)
    assert prompts.units["answer"] == "label" and prompts.units[program.columns[0]] in ("1", "label")


def test_rotation_and_distractors_leave_the_answers_and_carry_the_truth(tmp_path):
    write_noisy("evidence", Noise(rotate=True, n_distractors=2, seed=4), tmp_path / "a")
    write_noisy("evidence", Noise(rotate=True, n_distractors=2, seed=4), tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    model, plain = interp.load(str(tmp_path / "a")), interp.load("program:evidence", check=False)
    drawn = model.task.sample(np.random.default_rng(0), 10)
    turned, _ = _streams(model.module, drawn.tokens)
    straight, _ = _streams(plain.module, drawn.tokens)
    truth = true_directions(tmp_path / "a", read_card(tmp_path / "a"))
    back = [x @ np.linalg.pinv(truth) for x in turned]
    n = len(read_program("evidence")["labels"])
    for ours, other in zip(back, straight, strict=True):
        np.testing.assert_allclose(ours[..., :n], other, atol=2e-3)
    assert _accuracy(model.module, Program("evidence")) == 1.0
    assert np.abs(back[-1][..., n:]).max() > 0.01, "distractors write"
    assert model.card["distractor_heads"] == [[0, 2], [0, 3]]


def test_noise_is_superposition_or_relative_to_each_matrix(tmp_path):
    write_noisy("shift_by_one", Noise(n_dimensions=12, seed=1), tmp_path)
    truth = true_directions(tmp_path, read_card(tmp_path))
    assert interp.load(str(tmp_path)).info.d_model == 12 < len(truth)
    np.testing.assert_allclose(np.linalg.norm(truth, axis=1), 1.0, atol=1e-6)
    with pytest.raises(UsageError, match="superposition in 99 dimensions"):
        write_noisy("shift_by_one", Noise(n_dimensions=99), tmp_path)
    for weight_noise in (np.inf, np.nan, -1.0):
        with pytest.raises(UsageError, match="weight_noise is a number from 0 to 1,000"):
            Noise(weight_noise=weight_noise)
    write_noisy("shift_by_one", Noise(weight_noise=0.01, seed=1), tmp_path)
    noisy, plain = interp.load(str(tmp_path)).module, interp.load("program:shift_by_one", check=False).module
    moved = noisy.embed_tokens.weight - plain.embed_tokens.weight
    assert 0.005 < float(moved.std() / plain.embed_tokens.weight.std()) < 0.02


def test_unknown_programs_tokens_and_broken_cards_are_refused(tmp_path):
    with pytest.raises(UnknownName, match="frac_prev"):
        interp.load("program:frac_prev")
    with pytest.raises(UsageError, match="it does not know 'z'"):
        evaluate(read_program("hist"), ["z"])
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "program.json").write_text("{}")
    with pytest.raises(ModelError, match="card of the program"):
        interp.load(str(tmp_path))


def test_a_rebuild_without_tracr_names_the_extra():
    result = CliRunner().invoke(app, ["rebuild", "hist"])
    assert "interp[programs]" in str(result.exception)
