"""The latent-label process: exact posteriors against enumeration, and the table of published expectations."""

from itertools import product

import numpy as np
import pytest
from interp.prompts.evidence import check_sizes, draw_problems, evidence_columns, evidence_of_one, posterior

from interp.errors import PromptError
from interp.information import entropy_bits

KS = (0, 1, 2, 4, 8)


def sequences(k):
    """Every sequence of k labels."""
    return np.array(list(product((0, 1), repeat=k)), dtype=np.int64).reshape(2**k, k)


def joint(shown, reliability=0.9):
    """p(latent, labels) term by term: prior ½, one likelihood an example."""
    right = [[reliability if label == latent else 1 - reliability for label in shown] for latent in (0, 1)]
    return 0.5 * np.prod(right, axis=1)


@pytest.mark.parametrize("reliability", [0.5, 0.75, 0.9, 0.99])
def test_posterior_is_bayes_rule_over_every_sequence(reliability):
    for k in (0, 1, 3, 6):
        shown = sequences(k)
        columns = evidence_columns(shown, reliability)
        expected = np.array([joint(row, reliability) / joint(row, reliability).sum() for row in shown])
        np.testing.assert_allclose(posterior(columns["log_odds_bits"]), expected, rtol=1e-10)
        np.testing.assert_allclose(columns["bayes_entropy_bits"], entropy_bits(expected), atol=1e-12)
        assert (columns["k"] == k).all() and (columns["n_1"] + columns["n_2"] == k).all()
        assert (columns["noise_entropy_bits"] == 1).all() and (columns["p_label_1_noise"] == 0.5).all()


def test_entropies_errors_and_small_probabilities_are_the_published_ones():
    assert evidence_of_one(0.9) == pytest.approx(np.log2(9))
    far = posterior(np.array([100.0]))[0]
    assert far[1] == pytest.approx(2.0**-100, rel=1e-12)
    told = lambda shown: joint(shown).sum()  # noqa: E731
    assert expectations(told)[0] == pytest.approx([1.0, 0.469, 0.258, 0.078, 0.008], abs=5e-4)
    assert expectations(lambda row: 0.5 ** len(row))[0] == pytest.approx([1.0, 0.469, 0.547, 0.423, 0.316], abs=1e-3)
    _, entropy, weight = expectations(told)
    mean = entropy @ weight
    assert mean == pytest.approx(0.363, abs=5e-4)
    assert np.abs(entropy - mean) @ weight == pytest.approx(0.357, abs=5e-4)
    assert min(np.abs(entropy - c) @ weight for c in np.linspace(0, 1, 2001)) == pytest.approx(0.328, abs=5e-4)
    assert np.abs(entropy - 1) @ weight == pytest.approx(0.637, abs=5e-4)


def expectations(weight):
    """E[H_Bayes | k] with every sequence of labels weighted by `weight(shown)`, and all entropies with weights."""
    by_k, entropies, weights = [], [], []
    for k in KS:
        shown = sequences(k)
        entropy = evidence_columns(shown, 0.9)["bayes_entropy_bits"]
        w = np.array([weight(row) for row in shown])
        assert w.sum() == pytest.approx(1)
        by_k.append(float(entropy @ w))
        entropies.append(entropy)
        weights.append(w / len(KS))
    return by_k, np.concatenate(entropies), np.concatenate(weights)


def test_problems_are_balanced_and_labels_are_right_as_often_as_said():
    problems = draw_problems(KS, 400, 0.9, np.random.default_rng(0))
    for k in KS:
        mine = problems.k == k
        cells = np.bincount(problems.latent[mine] * 2 + problems.swapped[mine], minlength=4)
        assert cells.tolist() == [100] * 4
        shown = problems.shown[mine]
        assert (shown[:, :k] >= 0).all() and (shown[:, k:] == -1).all()
        if k:
            right = shown[:, :k] == problems.latent[mine][:, None]
            assert right.mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / right.size))
    # which problem has which role is random: neighbours tell nothing
    assert len(np.unique(problems.latent[:20])) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ((0, -1), 5, 0.9), ((), 5, 0.9), ((1, 1), 5, 0.9), ((1,), 0, 0.9), ((1,), 5, 0.4), ((1,), 5, 1.0),
        ((1,), 5, float("nan")),
    ],
)  # fmt: skip
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(PromptError, match="the prompts 'sula'"):
        check_sizes("sula", *arguments)
