"""Agreement of attention's changes with advantages on six pairs, by hand."""

import numpy as np
import pytest
from interp.probes.gradient_laws.routing import Pairs, Routed, agreement, permuted_agreement
from scipy import stats

ADVANTAGE = np.array([[2.0, -1.0, 0.0, 3.0, -2.0, 1.0], [1.0, 1.0, 1.0, -1.0, 2.0, 0.5]])
CHANGE = np.array([[4.0, 2.0, 1.0, -3.0, -6.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])


def test_measures_are_by_hand_and_by_sequence():
    found = agreement(ADVANTAGE, CHANGE)
    # 4, −6 and 0.5 agree with the sign of their advantage; the pair of no advantage agrees with nothing
    rho = stats.spearmanr(ADVANTAGE[0], CHANGE[0])[0]
    assert found[:, 0] == pytest.approx([10.5 / 16.5, 3 / 6, rho])
    assert np.isnan(found[:, 1]).all(), "nothing moved in the second head"
    rng = np.random.default_rng(1)
    several = [Pairs(np.repeat(np.arange(4), 3), *rng.standard_normal((2, 2, 12))) for _ in range(3)]
    routed = Routed.of(several, 30, np.random.default_rng(2))
    assert routed.observed.shape == routed.expected.shape == (3, 3, 2) and routed.signs.shape == (30, 3)
    for found, pairs in zip(routed.observed, several, strict=True):
        np.testing.assert_allclose(found, agreement(pairs.advantage, pairs.change))
    again = np.random.default_rng(2)
    for expected, pairs in zip(routed.expected, several, strict=True):
        np.testing.assert_allclose(expected, permuted_agreement(pairs, 30, again).mean(axis=0))


def test_pairs_are_those_that_are_seen_in_rows_with_a_choice_and_an_effect():
    visible = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    advantage = np.zeros((2, 3, 3))
    advantage[1, 2, 1], advantage[0, 1, 2], advantage[0, 0, 0] = (
        1.0,
        5.0,
        1.0,
    )  # the second is not seen, the third alone
    pairs = Pairs.of(advantage, np.arange(18.0).reshape(2, 3, 3), visible)
    assert pairs.row.tolist() == [2, 2, 2] and pairs.change.tolist() == [[6, 7, 8], [15, 16, 17]]
    assert pairs.advantage.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_permutations_are_of_the_advantages_of_each_row():
    """Rows of two pairs: a permutation leaves or swaps each, so that eight worlds are as likely."""
    pairs = Pairs(np.array([0, 0, 1, 1, 2, 2]), ADVANTAGE[:1], CHANGE[:1])
    found = permuted_agreement(pairs, 800, np.random.default_rng(0))
    worlds = []
    for swaps in np.ndindex(2, 2, 2):
        order = np.concatenate([[2 * i, 2 * i + 1][:: -1 if s else 1] for i, s in enumerate(swaps)])
        worlds.append(agreement(ADVANTAGE[:1, order], CHANGE[:1])[:, 0])
    far = np.abs(found[:, None, :, 0] - np.array(worlds)).max(axis=2)
    assert (far.min(axis=1) < 1e-9).all() and (np.bincount(far.argmin(axis=1), minlength=8) > 60).all()


@pytest.mark.slow
def test_keys_that_rows_share_do_not_make_attention_follow_the_advantage():
    """Some keys are good for all rows, and some keys gain attention in all rows; which ones has nothing in common."""
    rng = np.random.default_rng(3)
    called = 0
    for _ in range(40):
        several = []
        for _ in range(10):
            row = np.repeat(np.arange(5), 6)
            good, gaining = np.tile(rng.standard_normal((2, 1, 6)), 5)
            several.append(Pairs(row, good + 0.1 * rng.standard_normal(30), gaining + 0.1 * rng.standard_normal(30)))
        routed = Routed.of(several, 59, rng)
        p, _ = routed.test(routed.observed[:, 0], routed.expected[:, 0])
        called += p[0] <= 0.05
    assert called <= 7  # 999 in 1,000 at a rate of 5 %
