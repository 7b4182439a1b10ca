"""Several tasks behind a domain token: their own posteriors, and the sign of the domain comparison."""

import numpy as np
import pytest
from interp.probes.manifold.collapse import Collapse, Pool, Spectra, domain_collapse, fifth_of
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.tasks.mixture import Mixture

from interp.errors import UnknownName, UsageError
from interp.information import entropy_bits
from tests.wind_tunnels.enumeration import predictive

ELIMINATION = {"task": "bijection", "V": 3, "L": 2, "replacement": False}
TOSSES = {"task": "coin", "n_tosses": 2, "concentration": (1.0, 2.0)}


def test_posterior_equals_enumeration_of_both_components():
    """Six bijections of each pair of distinct keys, and four sequences of two tosses with their probabilities."""
    mixture = Mixture([ELIMINATION, TOSSES])
    bijection, coin = mixture.tasks
    keys = np.array([(a, b) for a in range(3) for b in range(3) if a != b])
    each = np.repeat(keys, 6, axis=0), np.tile(keys, (6, 1))  # two distinct values: each from one bijection
    tosses = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    probability = np.array([1 / 3 * 2 / 4, 1 / 3 * 2 / 4, 2 / 3 * 1 / 4, 2 / 3 * 3 / 4])
    parts = [bijection.encode(*each), coin.encode(np.full((4, 2), 0.5), tosses)]
    component = np.repeat([0, 1], [36, 4])
    sequences = mixture._mixed(component, parts)
    weight = np.concatenate([np.full(36, 1 / 36), probability])
    np.testing.assert_allclose(sequences.posterior, predictive(sequences, weight), atol=1e-14)


def test_disjoint_symbols_are_shifted_behind_the_domain_tokens():
    mixture = Mixture([ELIMINATION, TOSSES])
    bijection, coin = mixture.tasks
    parts = [
        bijection.encode(np.array([[2, 0]]), np.array([[1, 0]])),
        coin.encode(np.ones((1, 2)) / 2, np.eye(2, dtype=int)[:1]),
    ]
    drawn = mixture._mixed(np.array([1, 0]), parts)
    assert mixture.vocab_size == 2 + 6 + 3
    assert drawn.tokens.tolist() == [[1, 8 + 2, 8 + 1, 8 + 2], [0, 2 + 2, 2 + 3 + 1, 2 + 0]]
    assert drawn.slice_ids.tolist() == [5, 6, 7, 8, 9]
    assert drawn.targets.tolist() == [[9, 8], [6, 5]]
    assert drawn.scored.tolist() == [1, 3]
    assert drawn.domain.tolist() == ["coin", "bijection"]
    assert drawn.columns["position"].tolist() == [[1, 3], [1, 3]]
    np.testing.assert_allclose(drawn.posterior[0, 1], [0, 0, 0, 1 / 4, 3 / 4])
    np.testing.assert_allclose(drawn.posterior[1, 1], [1 / 2, 0, 1 / 2, 0, 0])


def test_components_share_symbols_behind_domains_and_keep_their_belief():
    mixture = Mixture([ELIMINATION, TOSSES], "shared")
    drawn = mixture.sample(np.random.default_rng(0), 40)
    assert mixture.vocab_size == 2 + 6
    assert drawn.slice_ids.tolist() == [2, 3, 5, 6, 7]
    is_coin = drawn.domain == "coin"
    assert set(drawn.tokens[is_coin, 1:].ravel().tolist()) <= {2, 3, 4}
    drawn = Mixture([ELIMINATION, TOSSES]).sample(np.random.default_rng(0), 60)
    is_coin = drawn.domain == "coin"
    assert drawn.belief[is_coin, :, :3].max() == 0 and drawn.belief[~is_coin, :, 3:].max() == 0
    np.testing.assert_allclose(drawn.belief[is_coin, 0, 3:], np.tile([1 / 6, 1 / 3, 1 / 2], (is_coin.sum(), 1)))
    longer = Mixture([{"task": "bijection", "V": 5, "L": 4}, {"task": "coin", "n_tosses": 4}]).lengthened(9)
    assert [task.n_positions for task in longer.tasks] == [17, 17]


def test_each_sequence_is_its_components_own():
    mixture = Mixture([ELIMINATION, ELIMINATION, TOSSES])
    drawn = mixture.sample(np.random.default_rng(0), 3000)
    assert mixture.domains == ("bijection-1", "bijection-2", "coin")
    frequency = np.unique(drawn.domain, return_counts=True)[1] / 3000
    assert np.abs(frequency - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 3000)
    np.testing.assert_array_equal(np.array(mixture.domains)[drawn.tokens[:, 0]], drawn.domain)
    second = drawn.take(np.flatnonzero(drawn.tokens[:, 0] == 1))
    pairs = Bijection(V=3, L=2, replacement=False)
    own = pairs.encode(
        second.tokens[:, 1::2] - 9, np.column_stack([second.tokens[:, 2] - 12, second.targets[:, 1] - 12])
    )
    inside = np.isin(drawn.slice_ids, 12 + np.arange(3))
    np.testing.assert_allclose(second.posterior[:, :, inside], own.posterior)
    assert (second.posterior[:, :, ~inside] == 0).all()
    np.testing.assert_allclose(second.columns["bayes_entropy_bits"], entropy_bits(second.posterior), atol=1e-12)


def test_orbits_and_curricula_hold_every_component_alike():
    mixture = Mixture([ELIMINATION, ELIMINATION, TOSSES])
    batches = [mixture.sample_orbits(np.random.default_rng(seed), 10, 3) for seed in range(60)]
    assert all(len(batch) == 10 for batch in batches)
    counts = np.array([[np.sum(batch.domain == name) for name in mixture.domains] for batch in batches])
    assert counts.min() == 3 and counts.max() == 4
    assert {str(batch.domain[0]) for batch in batches} == set(mixture.domains)
    values = batches[0].tokens[batches[0].domain == "bijection-1"][:3, 2]
    assert len(set(values.tolist())) == 3
    task = Mixture([{"task": "bijection", "V": 5, "L": 4}, {"task": "coin", "n_tosses": 4}])
    stages = task.curriculum()
    assert [stage.tasks[0].key_pool for stage in stages] == [3, 4, None]
    assert [stage.tasks[1] for stage in stages] == [task.tasks[1]] * 3
    assert stages[-1] is task
    assert {stage.vocab_size for stage in stages} == {task.vocab_size}
    assert [len(Mixture(name).curriculum()) for name in ("different", "same")] == [1, 6]
    assert {stage.vocab_size for stage in Mixture("same").curriculum()} == {Mixture("same").vocab_size}


def collapse(mixture: Mixture, seed: int) -> Collapse:
    """The domain comparison of `manifold` with the exact posteriors as the cloud, one scored position a sequence."""
    rng = np.random.default_rng(seed)
    drawn = mixture.sample(rng, 500)
    rows, at = np.arange(500), rng.integers(len(drawn.scored), size=500)
    entropy = drawn.columns["bayes_entropy_bits"][rows, at]
    pool = Pool(drawn.domain, fifth_of(entropy), np.zeros(500, dtype=int), rows, rng.random(500), 15)
    assert pool.counts.min() >= 3  # both domains take part in every fifth of the entropy
    return domain_collapse(pool, Spectra(drawn.posterior[rows, at], "centred"), 60, rng)


@pytest.mark.parametrize("seed", range(4))
def test_different_geometry_collapses_into_regression_and_spreads_into_the_coin(seed):
    found = collapse(Mixture("different"), seed)
    assert found.pool.domains == ["coin", "regression"]
    _, (_, coin, _), (_, regression, ratio) = found.changes
    assert regression > 0.1 and ratio < 0 and found.p[2, 1] == pytest.approx(1 / 61)
    assert coin < 0 and found.p[1, 1] > 0.5


@pytest.mark.slow
def test_the_same_geometry_collapses_only_over_disjoint_symbols():
    # Over 12 draws p is not small more often than it should be, and the changes have no common sign.
    found = [collapse(Mixture("same"), seed) for seed in range(12)]
    assert sum(f.p[1:, 1].min() <= 0.05 for f in found) <= 3  # more than 3 of 12 come by chance once in 450 times
    largest = (found[0].permuted[:, 1:] * [1, 1, -1]).max(axis=1)[:, None]
    np.testing.assert_allclose(found[0].p[1:], (1 + (largest >= found[0].changes[1:] * [1, 1, -1]).sum(axis=0)) / 61)
    changes = np.array([f.changes[1:, 1] for f in found]).mean(axis=1)
    assert abs(changes.mean()) < 4 * changes.std() / np.sqrt(12)
    # Two clouds of one shape at right angles: the mixed set has twice the directions of either.
    found = [collapse(Mixture("same", "disjoint"), seed) for seed in range(4)]
    assert np.mean([f.changes[1:, 1] for f in found]) > 0.05
    assert sum(f.p[1:, 1].min() <= 0.05 for f in found) >= 3


def test_unknown_names_are_refused_in_words(without_type_checks):
    with pytest.raises(UnknownName, match="there is no mixture of this name"):
        Mixture("differing")
    with pytest.raises(UnknownName, match="tunnel 'coins'"):
        Mixture([ELIMINATION, {"task": "coins"}])
    with pytest.raises(UsageError, match="it has no such parameter"):
        Mixture([ELIMINATION, {"task": "coin", "sides": 2}])
    with pytest.raises(UnknownName, match="there is no symbols of this name"):
        Mixture("same", "common")
    with pytest.raises(UsageError, match="components = 3"):
        Mixture(3)
