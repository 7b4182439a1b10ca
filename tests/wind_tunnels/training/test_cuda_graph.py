"""Training on a device: batches by torch follow the task, and the step is the ordinary one. Graphs need a GPU."""

import dataclasses

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.conformance import check_task
from interp.wind_tunnels.tasks.on_device import copied
from interp.wind_tunnels.training.cuda_graph import DeviceUpdate, Step
from interp.wind_tunnels.training.loop import cross_entropy, start, train
from interp.wind_tunnels.training.recipe import Recipe
from interp.wind_tunnels.training.stream import seed_of_step, stream_of

from interp.errors import UsageError
from interp.tunnel import Sequences

TASKS = [
    Bijection(V=3, L=3, replacement=False),
    Bijection(V=3, L=4),
    Bijection(V=4, L=3, key_pool=2),
    Bijection(V=3, L=3, layout="paired"),
    Bijection(V=4, L=3, replacement=False, layout="paired"),
]
TASK = Bijection(V=4, L=5)
SMALL = Network(n_layers=2, n_heads=2, d_model=16)
SHORT = Recipe(n_steps=12, batch=16, n_copies=4, n_warmup=3)


def drawn_by_torch(task: Bijection, seed: int, n: int, n_copies: int) -> tuple[Sequences, float]:
    """The sequences of a draw, their posterior from the numpy task, and the mean entropy that torch says."""
    drawn = task.sample_on(torch.Generator().manual_seed(seed), n, n_copies)
    first_value = task.vocab_size - task.V
    keys, values = drawn.tokens[:, 0::2].numpy(), (drawn.targets - first_value).numpy()
    sequences = task.encode(keys, values)
    np.testing.assert_array_equal(sequences.tokens, drawn.tokens.numpy())
    np.testing.assert_array_equal(sequences.targets, drawn.targets.numpy())
    return sequences, drawn.bayes_bits.item()


@dataclasses.dataclass(frozen=True)
class ByTorch(Bijection):
    """The bijection task, drawn by torch."""

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return drawn_by_torch(self, int(rng.integers(2**62)), n, 1)[0]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_what_torch_draws_follows_the_posterior(task):
    check_task(ByTorch(**task.describe()), np.random.default_rng(0))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_what_torch_draws_is_spread_like_what_numpy_draws(task):
    ours = drawn_by_torch(task, 0, 30_000, 1)[0].tokens
    theirs = task.sample(np.random.default_rng(1), 30_000).tokens
    both, which = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
    one, other = np.bincount(which[:30_000], minlength=len(both)), np.bincount(which[30_000:], minlength=len(both))
    square = (np.square(one - other) / (one + other)).sum()
    assert square < len(both) + 6 * np.sqrt(2 * len(both))


@pytest.mark.parametrize("task", [Bijection(V=6, L=8), Bijection(V=6, L=6, replacement=False)], ids=str)
def test_orbits_by_torch_are_relabellings_and_the_mean_entropy_is_exact(task):
    sequences, bits = drawn_by_torch(task, 3, 31, 6)
    assert len(sequences) == 31
    assert bits == pytest.approx(sequences.columns["bayes_entropy_bits"].mean(), rel=1e-6)
    groups = sequences.tokens[:30].reshape(5, 6, -1)
    assert (groups[:, :, 0::2] == groups[:, :1, 0::2]).all()
    answers = np.sort(sequences.targets[:30].reshape(5, 6, -1), axis=1)
    assert (answers == np.arange(6, 12)[None, :, None]).all()


@pytest.mark.parametrize("target", ["labels", "distil"])
def test_step_has_the_loss_of_the_ordinary_update_within_bfloat16(target):
    recipe = dataclasses.replace(SHORT, target=target)
    progress, sequences = start(TASK, SMALL, recipe), TASK.sample(np.random.default_rng(0), recipe.batch)
    expected = cross_entropy(progress.model, sequences, target).item()
    before = [p.detach().clone() for p in progress.model.parameters()]
    step = Step(progress, TASK.sample(np.random.default_rng(9), recipe.batch), recipe, use_graphs=False)
    loss = step(copied(sequences, torch.device("cpu"), with_posterior=target == "distil"))
    assert loss.item() == pytest.approx(expected, rel=0.02)
    assert all(not torch.equal(p, old) for p, old in zip(progress.model.parameters(), before, strict=True))


def test_updates_on_a_device_learn_and_count_like_ordinary_ones():
    recipe = dataclasses.replace(SHORT, n_steps=150, curriculum="none")
    task = Bijection(V=4, L=4, replacement=False)
    progress, stream = start(task, SMALL, recipe), stream_of(task, recipe)
    update = DeviceUpdate(progress, use_graphs=False)
    update(progress, stream, recipe)
    first = progress.excess_bits
    while progress.step < recipe.n_steps:
        update(progress, stream, recipe)
    assert progress.curve[-1][0] == 150
    assert progress.excess_bits < first / 10


def test_batch_of_a_step_depends_on_seed_and_step_alone():
    seeds = {seed_of_step(dataclasses.replace(SHORT, seed=seed), step) for seed in (0, 1) for step in range(50)}
    assert len(seeds) == 100 and min(seeds) >= 0 and max(seeds) < 2**63
    assert seed_of_step(SHORT, 7) == seed_of_step(SHORT, 7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_training_on_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(UsageError) as refusal:
        train(TASK, SMALL, dataclasses.replace(SHORT, device="cuda"))
    assert "torch finds no GPU here" in str(refusal.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_training_learns():
    recipe = Recipe(n_steps=400, batch=64, n_copies=4, device="cuda")
    progress = train(Bijection(V=4, L=6), Network(n_layers=2, n_heads=4, d_model=32), recipe)
    assert progress.excess_bits < 0.1
