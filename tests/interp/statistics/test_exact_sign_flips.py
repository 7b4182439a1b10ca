"""The exact p of a few paired differences, against all patterns of signs and against simulated ones."""

from itertools import product

import numpy as np
import pytest

from interp.statistics.exact_sign_flips import MAX_EXACT, sign_flip_p, smallest_p


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_p_is_the_share_of_all_patterns_that_reach_as_far(n):
    differences = np.random.default_rng(n).normal(0.5, 1.0, n)
    sums = np.array([np.dot(signs, differences) for signs in product((1, -1), repeat=n)])
    assert sign_flip_p(differences) == pytest.approx((np.abs(sums) >= abs(differences.sum()) - 1e-9).mean())
    assert sign_flip_p(np.ones(n)) == smallest_p(n)


def test_of_many_differences_p_is_drawn_and_never_0():
    many = MAX_EXACT + 6
    assert sign_flip_p(np.ones(many)) == smallest_p(many) == 1e-4
    p = [sign_flip_p(np.random.default_rng(seed).normal(size=many)) for seed in range(200)]
    assert np.mean(np.array(p) <= 0.2) == pytest.approx(0.2, abs=0.08)
    assert np.isnan(sign_flip_p(np.array([])))
