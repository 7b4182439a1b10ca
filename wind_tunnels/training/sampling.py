"""The sequences of a training, batch by batch: fresh ones, or a fixed set. They can be drawn again (`share_seen`)."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from interp.errors import UsageError
from interp.records.tunnel_card import Figure
from interp.statistics.intervals import share_bounds
from interp.system.memory import available_bytes
from interp.tunnel import Sequences, Task

from .plan import Recipe

_WEIGHTS, _DATA, _EVALUATION, _RESAMPLES, _FIXED = range(5)
"""Independent streams of random numbers, so that evaluation never draws what training drew."""

_FEW = 8
"""Sequences drawn to measure their memory."""

_WEIGHTS_BYTES = 24_000
"""Memory of a sequence in 1,000 resamples."""


def generator(seed: int, stream: int) -> np.random.Generator:
    """One of the independent streams of a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def seed_of_weights(recipe: Recipe) -> int:
    """Seed of the initial weights."""
    return int(np.random.SeedSequence(recipe.seed, spawn_key=(_WEIGHTS,)).generate_state(1)[0])


def training_generator(recipe: Recipe) -> np.random.Generator:
    """Generator of the batches of a training."""
    return generator(recipe.seed, _DATA)


def evaluation_generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the sequences of an evaluation and of their resamples."""
    return generator(seed, _EVALUATION), generator(seed, _RESAMPLES)


def evaluation_sequences(task: Task, n: int, seed: int) -> Sequences:
    """The fresh sequences of an evaluation; `UsageError` for more than memory holds."""
    refuse_too_many(task, n)
    return task.sample(evaluation_generators(seed)[0], n)


def refuse_too_many(task: Task, n: int) -> None:
    """Raise `UsageError` if memory cannot hold so many sequences and their evaluation."""
    free = available_bytes(torch.device("cpu"))
    needed = 8 * n * task.n_positions
    if needed <= free:
        needed = n * _bytes_of_one(task)
    if needed > free:
        raise UsageError(
            asked=f"{n:,} sequences of {task.n_positions:,} tokens of the task {task.name}",
            found=f"with their predictions they take about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB "
            "are free",
            fix="Choose fewer sequences, or shorter ones.",
        )


def _bytes_of_one(task: Task) -> int:
    """Peak memory of a sequence: drawn (measured) or evaluated (computed), and its bootstrap weights."""
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    sequences = task.sample(np.random.default_rng(0), _FEW)
    drawn = (tracemalloc.get_traced_memory()[1] - before) // _FEW
    if not was_tracing:
        tracemalloc.stop()
    n_scored, n_outcomes = sequences.posterior.shape[1:]
    evaluated = 8 * n_scored * (3 * task.vocab_size + 6 * n_outcomes + 12)
    return max(drawn, evaluated) + _WEIGHTS_BYTES


class BatchSampler:
    """The batches of a training, from the `stages` of its curriculum or from `fixed` sequences."""

    def __init__(self, task: Task, recipe: Recipe) -> None:
        n, self.recipe, self.stages = recipe.n_distinct, recipe, stages_of(task, recipe)
        self.fixed = None if n is None else task.sample(generator(recipe.seed, _FIXED), n)

    def batch(self, rng: np.random.Generator, stage: int) -> Sequences:
        """The next batch, scored at the positions that the recipe trains."""
        recipe = self.recipe
        if self.fixed is None:
            sequences = self.stages[stage].sample_orbits(rng, recipe.batch, recipe.n_copies)
        else:
            sequences = self.fixed.take(rng.integers(len(self.fixed), size=recipe.batch))
        if recipe.horizon is None:
            return sequences
        positions = np.arange(len(sequences.scored))
        return sequences.at((positions < recipe.horizon) | (rng.random(len(positions)) < recipe.later_share))


def stages_of(task: Task, recipe: Recipe) -> tuple[Task, ...]:
    """The stages of a training; one for a fixed set of sequences, which are of the task itself."""
    return task.curriculum() if recipe.curriculum == "success" and recipe.n_distinct is None else (task,)


def share_seen(
    task: Task, recipe: Recipe, stage_ends: Sequence[int], n_steps: int, evaluated: Int[np.ndarray, "sequence pos"]
) -> Figure:
    """The share of evaluated sequences that training saw, by drawing its batches again; interval: Clopper-Pearson."""
    sampler, rng = BatchSampler(task, recipe), training_generator(recipe)
    wanted = [row.tobytes() for row in evaluated]
    seen, known, n = set(), {*wanted}, len(wanted)
    for step in range(n_steps):
        stage = sum(step >= end for end in stage_ends)
        seen |= known & {row.tobytes() for row in sampler.batch(rng, stage).tokens}
    k = sum(row in seen for row in wanted)
    return Figure(k / n, "fraction", *share_bounds(k, n))
