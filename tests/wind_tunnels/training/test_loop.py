"""The loop: its loss, its gate, and that stopping and resuming changes nothing."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from interp.wind_tunnels.evaluation.checkpoint import save
from interp.wind_tunnels.networks.networks import Network, build, predict
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import STATE_NAME, Recipe, TrainingState, initial_state, losses, train
from interp.wind_tunnels.training.optimisers import make_optimisers
from interp.wind_tunnels.training.plan import TrainingPlan
from interp.wind_tunnels.training.sampling import BatchSampler

from interp.errors import ModelError, UsageError
from interp.information import entropy_bits, kl_bits

TASK = Bijection(V=4, L=5)
SMALL = Network(n_layers=2, n_heads=2, d_model=16)
SHORT = Recipe(n_steps=12, batch=16, n_copies=4, n_warmup=3)
PLAN = TrainingPlan(TASK, SMALL, SHORT)


class Stopped(Exception):
    """Thrown by the tests in place of a power cut."""


def stop_at(step: int):
    def on_step(state: TrainingState) -> None:
        if state.step == step:
            raise Stopped

    return on_step


def same_weights(first: TrainingState, second: TrainingState) -> bool:
    one, other = first.model.state_dict(), second.model.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


def test_resumed_training_equals_an_uninterrupted_one_bit_for_bit(tmp_path):
    resumed, whole = resumed_and_whole(SMALL, dataclasses.replace(SHORT, gate_bits=9.0), None, tmp_path)
    assert same_weights(whole, resumed)
    assert (resumed.stage, resumed.excess_bits) == (whole.stage, whole.excess_bits)
    assert whole.stage == 1 and resumed.stage_ends == whole.stage_ends == [10]  # what decides is resumed as well


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A finished training on a smaller task, to start another one from."""
    folder = tmp_path_factory.mktemp("trained") / "bijection-llama"
    network = dataclasses.replace(SMALL, arch="llama", attention_layers=(1,))
    small = Bijection(V=4, L=4)
    plan = TrainingPlan(small, network, SHORT)
    save(train(plan), plan, folder)
    return folder


def resumed_and_whole(network, recipe, init, folder) -> tuple[TrainingState, TrainingState]:
    for step in (3, 8, 11):
        with pytest.raises(Stopped):
            train(TrainingPlan(TASK, network, recipe, init=init), folder=folder, on_step=stop_at(step), save_every=2)
    resumed = train(TrainingPlan(TASK, network, recipe, init=init), folder=folder, save_every=2)
    return resumed, train(TrainingPlan(TASK, network, recipe, init=init))


def test_a_damaged_state_is_refused_in_words(tmp_path):
    plan = TrainingPlan(TASK, SMALL, SHORT)
    with pytest.raises(Stopped):
        train(plan, folder=tmp_path, on_step=stop_at(3), save_every=1)
    state = tmp_path / STATE_NAME
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"training.pt cannot be read .*\n.*remove .* to start over"):
        train(plan, folder=tmp_path)


def silent_projection(state: TrainingState, layer: int) -> torch.Tensor:
    return state.model.get_submodule(f"model.layers.{layer}.self_attn.o_proj").weight


def test_training_from_a_checkpoint_begins_at_its_weights_and_resumes_bit_for_bit(trained, tmp_path):
    init = open_tunnel(trained)
    first, weights = initial_state(TrainingPlan(TASK, init.network, SHORT, init=init)), load_weights(trained)
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), weights.parameters(), strict=True))
    resumed, whole = resumed_and_whole(init.network, SHORT, init, tmp_path)
    assert same_weights(resumed, whole)
    assert not same_weights(whole, first)
    assert resumed.curve[-1][:3] == whole.curve[-1][:3] and len(whole.curve) == 12


def test_attention_that_is_switched_off_stays_off_through_resuming_and_starting_anew(trained, tmp_path):
    network = dataclasses.replace(SMALL, arch="llama", attention_layers=(1,))
    resumed, _ = resumed_and_whole(network, SHORT, None, tmp_path)
    tuned = train(TrainingPlan(TASK, network, SHORT, init=open_tunnel(trained)))
    for state in (resumed, tuned):
        assert (silent_projection(state, 0) == 0).all()
        assert (silent_projection(state, 1) != 0).any()


@pytest.mark.slow
def test_training_on_fixed_sequences_resumes_bit_for_bit_and_learns_them_by_heart(tmp_path):
    recipe = dataclasses.replace(SHORT, n_distinct=5)
    resumed, whole = resumed_and_whole(SMALL, recipe, None, tmp_path)
    assert same_weights(resumed, whole)
    by_heart = dataclasses.replace(SHORT, n_distinct=4, n_steps=150)
    state = train(TrainingPlan(TASK, SMALL, by_heart))
    fixed = BatchSampler(TASK, by_heart).fixed
    assert fixed is not None
    fresh = TASK.sample(np.random.default_rng(5), 200)
    on_fixed, on_fresh = (losses(state.model, each, "labels")[0].item() for each in (fixed, fresh))
    assert on_fixed < 0.3 < 1.0 < on_fresh


def test_a_folder_of_another_training_and_too_few_token_ids_are_refused(trained, tmp_path):
    with pytest.raises(UsageError) as refusal:
        open_tunnel(trained).refuse_larger(Bijection(V=5, L=5))
    assert "the task has 10 token ids, the checkpoint 8" in str(refusal.value)
    with pytest.raises(Stopped):
        train(PLAN, folder=tmp_path, on_step=stop_at(4), save_every=2)
    with pytest.raises(ModelError) as refusal:
        train(TrainingPlan(TASK, SMALL, dataclasses.replace(SHORT, seed=1)), folder=tmp_path)
    assert "an unfinished training of another task, network or recipe lies there" in str(refusal.value)


def test_adamw_alone_moves_every_parameter():
    recipe = dataclasses.replace(SHORT, optimiser="adamw", n_steps=3)
    before = initial_state(TrainingPlan(TASK, SMALL, recipe))
    assert [type(o).__name__ for o in before.optimisers] == ["AdamW"]
    assert [type(o).__name__ for o in initial_state(PLAN).optimisers] == ["Muon", "AdamW"]
    after = train(TrainingPlan(TASK, SMALL, recipe))
    pairs = zip(before.model.named_parameters(), after.model.parameters(), strict=True)
    assert all(not torch.equal(p, q) for (_, p), q in pairs)


def test_steps_are_kept_as_asked_and_the_state_is_never_half_written(tmp_path):
    train(TrainingPlan(TASK, SMALL, SHORT, keep=(0, 7)), folder=tmp_path / "kept")
    assert sorted(int(path.name) for path in (tmp_path / "kept" / "steps").iterdir()) == [0, 7]
    with pytest.raises(Stopped):
        train(PLAN, folder=tmp_path / "stopped", on_step=stop_at(5), save_every=2)
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == [STATE_NAME]
    assert torch.load(tmp_path / "stopped" / STATE_NAME, weights_only=True)["step"] == 4


def test_losses_are_of_labels_or_of_distillation_by_their_definition():
    model = build(SMALL, TASK, torch.Generator().manual_seed(0))
    sequences = TASK.sample(np.random.default_rng(0), 20)
    log_q = predict(model, sequences.tokens, sequences.scored)
    surprise = [
        -log_q[row, index, sequences.targets[row, index]] for row in range(20) for index in range(len(sequences.scored))
    ]
    assert losses(model, sequences, "labels")[0].item() == pytest.approx(np.mean(surprise), rel=1e-5)
    q = np.exp(predict(model, sequences.tokens, sequences.scored))[..., sequences.slice_ids]
    expected_bits = kl_bits(sequences.posterior, q).mean() + entropy_bits(sequences.posterior).mean()
    loss = losses(model, sequences, "distil")[0].item()
    assert loss / math.log(2) == pytest.approx(expected_bits, rel=1e-5)
    wrong = dataclasses.replace(sequences, posterior=np.roll(sequences.posterior, 1, axis=-1))
    assert losses(model, sequences, "labels")[0].item() == losses(model, wrong, "labels")[0].item()
    assert losses(model, sequences, "distil")[0].item() != losses(model, wrong, "distil")[0].item()


def test_excess_loss_is_the_kl_in_bits_smoothed_over_ten_batches():
    frozen = dataclasses.replace(SHORT, target="distil", n_steps=14, lr_muon=1e-12, lr_adamw=1e-12, n_copies=1)
    heard: list[float] = []
    model = train(TrainingPlan(TASK, SMALL, frozen), on_step=lambda p: heard.append(p.excess_bits)).model
    rng = np.random.default_rng(np.random.SeedSequence(frozen.seed).spawn(2)[1])
    kls: list[float] = []
    for said in heard:
        sequences = TASK.curriculum()[0].sample(rng, frozen.batch)
        q = np.exp(predict(model, sequences.tokens, sequences.scored))[..., sequences.slice_ids]
        kls.append(kl_bits(sequences.posterior, q).mean())
        expected = np.mean(kls[:10])
        for kl in kls[10:]:
            expected = 0.9 * expected + 0.1 * kl
        assert said == pytest.approx(expected, rel=1e-5)
    assert len(heard) == 14


@pytest.mark.slow
def test_curriculum_waits_for_success():
    never = train(TrainingPlan(TASK, SMALL, dataclasses.replace(SHORT, n_steps=40, gate_bits=1e-9)))
    always = train(TrainingPlan(TASK, SMALL, dataclasses.replace(SHORT, n_steps=40, gate_bits=99.0)))
    off = train(TrainingPlan(TASK, SMALL, dataclasses.replace(SHORT, n_steps=40, gate_bits=99.0, curriculum="none")))
    assert len(TASK.curriculum()) == 2
    assert (never.stage, always.stage, off.stage) == (0, 1, 0)
    assert always.steps_in_stage == 30  # ten steps are the least a stage is judged on


def test_kept_steps_hold_the_weights_of_their_steps_in_half_precision(tmp_path):
    final = train(TrainingPlan(TASK, SMALL, SHORT, keep=(4, 12)), folder=tmp_path)
    last = type(final.model).from_pretrained(tmp_path / "steps" / "12")
    middle = type(final.model).from_pretrained(tmp_path / "steps" / "4")
    weights = final.model.state_dict()
    assert all(torch.equal(weights[name].half(), p.half()) for name, p in last.state_dict().items())
    assert not all(torch.equal(weights[name].half(), p.half()) for name, p in middle.state_dict().items())


def test_rates_rise_to_their_peak_and_fall_to_zero():
    recipe = Recipe(n_steps=100, n_warmup=10)
    rates = [recipe.rate(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == rates[9] == pytest.approx(0.91)
    assert rates[100] == 0.0
    np.testing.assert_allclose(np.diff(rates[10:]), -0.01, atol=1e-12)


@pytest.mark.parametrize("target", ["labels", "distil"])
def test_a_step_takes_place_wholly_on_the_device_of_the_network(target):
    """The meta device computes nothing and refuses whatever lies elsewhere, so it stands in for a GPU."""
    network = Network(arch="mlp-context", n_layers=2, d_model=16)  # transformers' masks cannot be made there
    model = build(network, TASK, torch.Generator().manual_seed(0)).to("meta")
    optimisers = make_optimisers(model, SHORT)
    loss = losses(model, TASK.sample(np.random.default_rng(0), 20), target)[0]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), SHORT.clip)
    for optimiser in optimisers:
        optimiser.step()
    moments = [x for o in optimisers for state in o.state.values() for name, x in state.items() if name != "step"]
    assert {x.device.type for x in (loss, *model.parameters(), *moments)} == {"meta"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_training_on_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UsageError) as refusal:
        train(TrainingPlan(TASK, SMALL, dataclasses.replace(SHORT, device="cuda")))
    assert "torch finds no GPU here" in str(refusal.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_training_on_a_gpu_goes_on_where_it_was_stopped_and_comes_to_what_a_cpu_comes_to(tmp_path):
    recipe = dataclasses.replace(SHORT, device="cuda")
    with pytest.raises(Stopped):
        train(TrainingPlan(TASK, SMALL, recipe), folder=tmp_path, on_step=stop_at(7), save_every=3)
    resumed, on_cpu = train(TrainingPlan(TASK, SMALL, recipe), folder=tmp_path), train(PLAN)
    assert {p.device.type for p in resumed.model.parameters()} == {"cuda"}
    assert resumed.excess_bits == pytest.approx(on_cpu.excess_bits, rel=1e-2)
