"""The mean of a few repetitions and how far it may be off."""

import numpy as np
import pytest
from scipy import stats

from interp.statistics.intervals import t_half_width, t_mean


def test_half_widths_are_t_times_the_standard_error():
    values = np.array([[[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]])
    # s² = 7 and 3, three repetitions, t of two degrees of freedom
    np.testing.assert_allclose(t_half_width(values), [4.302653 * np.sqrt([7 / 3, 3 / 3])], rtol=1e-6)
    assert float(t_half_width(np.array([0.0, 1.0]))) == pytest.approx(12.706205 * 0.5, rel=1e-6), "two are enough"
    assert not t_half_width(np.full((4, 3), 0.5)).any()
    alone = t_half_width(np.ones((4, 1)))
    assert alone.shape == (4,) and np.isnan(alone).all() and np.isnan(t_half_width(np.ones((2, 0)))).all()


def test_means_of_repetitions_have_the_interval_and_p_of_the_t_test():
    values = [0.010, 0.012, -0.011, 0.016]
    found, test = t_mean(values), stats.ttest_1samp(values, 0.0)
    assert (found.value, found.p) == pytest.approx((np.mean(values), test.pvalue))
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    alone, alike = t_mean([3.0]), t_mean([0.1, 0.1, 0.1])
    assert alone.value == 3.0 and np.isnan([alone.low, alone.high, alone.p]).all()
    assert alike.low == alike.value == alike.high and np.isnan(alike.p)
