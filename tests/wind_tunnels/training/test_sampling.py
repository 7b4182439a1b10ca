"""What a training is shown: streams that never meet, fixed sets, and the share of an evaluation that was seen."""

import dataclasses

import numpy as np
import pytest
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.plan import Recipe
from interp.wind_tunnels.training.sampling import (
    BatchSampler,
    evaluation_generators,
    seed_of_weights,
    share_seen,
    training_generator,
)
from scipy import stats

from interp.errors import UsageError

TASK = Bijection(V=4, L=5)
RECIPE = Recipe(n_steps=6, batch=8, n_copies=4, n_warmup=2)


def test_streams_are_the_children_of_the_seed_in_order():
    weights, data, drawn, resampled = np.random.SeedSequence(5).spawn(4)
    assert seed_of_weights(Recipe(seed=5)) == int(weights.generate_state(1)[0])
    ours = [training_generator(Recipe(seed=5)), *evaluation_generators(5)]
    for generator, child in zip(ours, (data, drawn, resampled), strict=True):
        assert generator.integers(2**60) == np.random.default_rng(child).integers(2**60)


def test_fixed_set_is_all_a_training_is_shown_and_comes_with_its_answers():
    sampler, rng = BatchSampler(TASK, dataclasses.replace(RECIPE, n_distinct=3)), np.random.default_rng(0)
    assert sampler.fixed is not None and len(sampler.stages) == 1
    pairs = {(*t, *y) for t, y in zip(sampler.fixed.tokens.tolist(), sampler.fixed.targets.tolist(), strict=True)}
    shown = set()
    for _ in range(20):
        batch = sampler.batch(rng, 0)
        assert len(batch) == 8
        shown |= {(*t, *y) for t, y in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)}
    assert shown == pairs


def test_beyond_a_horizon_only_the_asked_share_is_trained_and_the_sequences_stay_whole():
    task = Bijection(V=10, L=12)
    inside = BatchSampler(task, dataclasses.replace(RECIPE, horizon=4)).batch(np.random.default_rng(0), 0)
    assert inside.tokens.shape[1] == task.n_positions
    np.testing.assert_array_equal(inside.scored, [0, 2, 4, 6])
    assert inside.targets.shape == inside.columns["position"].shape == (8, 4)
    sampler = BatchSampler(task, dataclasses.replace(RECIPE, horizon=4, later_share=0.25))
    rng = np.random.default_rng(0)
    drawn = [sampler.batch(rng, 0).scored for _ in range(500)]
    assert all(scored[:4].tolist() == [0, 2, 4, 6] for scored in drawn)
    later = np.bincount(np.concatenate([scored[4:] for scored in drawn]), minlength=task.n_positions)[8::2]
    np.testing.assert_allclose(later / 500, 0.25, atol=0.08)
    with pytest.raises(UsageError, match="later_share without a horizon"):
        dataclasses.replace(RECIPE, later_share=0.1)


@pytest.mark.parametrize("changes", [{}, {"n_distinct": 9}, {"curriculum": "none"}], ids=str)
def test_share_seen_equals_keeping_every_sequence_of_the_training(changes):
    recipe, ends = dataclasses.replace(RECIPE, **changes), [2]
    if changes:
        ends = []
    sampler, rng = BatchSampler(TASK, recipe), training_generator(recipe)
    shown: set[tuple[int, ...]] = set()
    for step in range(recipe.n_steps):
        shown |= set(map(tuple, sampler.batch(rng, int(bool(ends) and step >= 2)).tokens.tolist()))
    evaluated = np.concatenate([np.array(sorted(shown)), TASK.sample(np.random.default_rng(3), 500).tokens])
    n = len(evaluated)
    n_seen = sum(tuple(row) in shown for row in evaluated.tolist())
    found = share_seen(TASK, recipe, ends, recipe.n_steps, evaluated)
    assert len(shown) <= n_seen < n and found.value == n_seen / n
    interval = stats.binomtest(n_seen, n).proportion_ci(method="exact")
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_nothing_seen_still_says_how_rare_it_must_be():
    found = share_seen(
        Bijection(), dataclasses.replace(RECIPE), [], 6, Bijection().sample(np.random.default_rng(1), 300).tokens
    )
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 300))
