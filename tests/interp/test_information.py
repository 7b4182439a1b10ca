"""Cross-entropy and restriction of log2 probabilities, against the definitions."""

import numpy as np
import pytest

from interp.information import cross_entropy_bits, entropy_bits, kl_bits, restricted


def test_information_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), 6), rng.dirichlet(np.ones(4), (3, 6))
    found = cross_entropy_bits(p, np.log2(q)) - entropy_bits(p)
    assert found.shape == (3, 6)
    for depth in range(3):
        np.testing.assert_allclose(found[depth], kl_bits(p, q[depth]))
    p = np.array([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    assert cross_entropy_bits(p, np.array([[-1.0, -np.inf, -1.0]])).tolist() == [1.0, np.inf]
    log2_q = np.array([[-3.0, -5.0, -1.0], [-2000.0, -2001.0, -2002.0]])
    found = restricted(log2_q)
    np.testing.assert_allclose(np.exp2(found).sum(axis=1), 1)
    np.testing.assert_allclose(np.diff(found), np.diff(log2_q))
    assert np.exp2(found[1]) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
