"""Tosses of a coin against integrals over its bias, and its symmetries."""

import numpy as np
import pytest
from interp.wind_tunnels.tasks.coin import Coin, next_two
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import beta


def evidence(concentration: np.ndarray, counts: np.ndarray) -> float:
    """log p(a sequence of tosses with these counts), the Dirichlet integral in gamma functions."""
    a, n = np.asarray(concentration, float), np.asarray(counts, float)
    return float(gammaln(a.sum()) - gammaln((a + n).sum()) + (gammaln(a + n) - gammaln(a)).sum())


@pytest.mark.parametrize("concentration", [(1.0, 1.0), (0.5, 2.0), (0.3, 0.3, 0.3), (2.0, 1.0, 0.5, 3.0)])
@pytest.mark.parametrize("layout", ["marked", "plain"])
def test_posterior_is_the_ratio_of_the_probabilities_of_two_sequences(concentration, layout):
    task = Coin(n_tosses=6, concentration=concentration, layout=layout)
    sequences = task.sample(np.random.default_rng(0), 12)
    for tosses, claimed in zip(sequences.targets, sequences.posterior, strict=True):
        for step in range(6):
            counts = np.bincount(tosses[:step], minlength=task.n_outcomes)
            for outcome in range(task.n_outcomes):
                after = counts + (np.arange(task.n_outcomes) == outcome)
                ratio = np.exp(evidence(task.concentration, after) - evidence(task.concentration, counts))
                assert claimed[step, outcome] == pytest.approx(ratio, abs=1e-12)


def test_posterior_belief_and_spread_are_integrals_over_the_bias():
    task = Coin(n_tosses=5, concentration=(1.5, 0.8))
    drawn = task.encode(np.array([[0.5, 0.5]]), np.array([[0, 0, 1, 0, 1]]))
    for step, (heads, tails) in enumerate([(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)]):
        density = beta(1.5 + heads, 0.8 + tails).pdf
        expect = lambda f, density=density: quad(lambda t: f(t) * density(t), 0, 1, limit=200)[0]  # noqa: E731
        assert drawn.posterior[0, step, 0] == pytest.approx(expect(lambda t: t), abs=1e-6)
        pair = [expect(lambda t: t * t), expect(lambda t: 2 * t * (1 - t)), expect(lambda t: (1 - t) ** 2)]
        np.testing.assert_allclose(drawn.belief[0, step], pair, atol=1e-6)
        variance = expect(lambda t: t * t) - expect(lambda t: t) ** 2
        assert drawn.columns["bias_sd"][0, step] == pytest.approx(np.sqrt(variance), abs=1e-5)


@pytest.mark.parametrize("n_outcomes", [2, 3, 5])
def test_belief_is_the_predictive_taken_twice(n_outcomes):
    weight = np.random.default_rng(0).gamma(1.0, size=(4, 3, n_outcomes)) + 0.1
    found = next_two(weight)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-14)
    total = weight.sum(axis=-1)
    for k, (i, j) in enumerate(zip(*np.triu_indices(n_outcomes), strict=True)):
        chain = weight[..., i] / total * (weight[..., j] + (i == j)) / (total + 1)
        if i != j:
            chain = chain + weight[..., j] / total * weight[..., i] / (total + 1)
        np.testing.assert_allclose(found[..., k], chain, atol=1e-14)


def test_layouts_are_marked_or_plain():
    drawn = Coin(n_tosses=4).encode(np.array([[0.5, 0.5]]), np.array([[1, 0, 0, 1]]))
    assert drawn.tokens.tolist() == [[2, 1, 2, 0, 2, 0, 2]]
    assert drawn.scored.tolist() == [0, 2, 4, 6]
    assert drawn.targets.tolist() == [[1, 0, 0, 1]]
    assert drawn.columns["n_first"].tolist() == [[0, 0, 1, 2]]
    assert drawn.columns["evidence"].tolist() == [[0, 1, 2, 3]]
    biased = Coin(n_tosses=2).encode(np.array([[0.3, 0.7]]), np.array([[1, 0]]))
    assert biased.columns["bias"].tolist() == [[0.3, 0.3]]
    drawn = Coin(n_tosses=50).sample(np.random.default_rng(0), 300)
    assert np.corrcoef(drawn.columns["bias"][:, 0], (drawn.targets == 0).mean(axis=1))[0, 1] > 0.9
    drawn = Coin(n_tosses=4, layout="plain").encode(np.array([[0.5, 0.5]]), np.array([[1, 0, 0, 1]]))
    assert drawn.tokens.tolist() == [[2, 1, 0, 0]]
    assert drawn.scored.tolist() == [0, 1, 2, 3]


def test_the_bias_goes_with_the_outcomes_that_are_shifted_where_the_prior_favours_none():
    bias = Coin(n_tosses=6, concentration=(0.5,) * 3).sample_orbits(np.random.default_rng(0), 9, 5).columns["bias"]
    np.testing.assert_allclose(bias[:, 0].reshape(3, 3).sum(axis=1), 1.0)  # each of the three stands first once
    assert Coin(n_tosses=5, concentration=(1.0, 2.0)).most_copies == 1
