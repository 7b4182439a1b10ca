"""Intervals and p: the one place that knows of 95 %, shares and counts against SciPy, exact flips of signs."""

import ast

import numpy as np
import pytest
from scipy import stats

from interp.statistics.intervals import (
    FISHER,
    PLAIN,
    UNEXPLAINED,
    count_band,
    excess,
    maximum_statistic_p,
    share_bounds,
    t_half_width,
    t_mean,
    t_quantile,
)  # fmt: skip
from tests.paths import ROOT

ITS_OWN = {0.025, 0.975, 1.96, 2.5, 97.5}
"""Numbers that spell a 95 % interval out; 2.5 is looked at as a percentage alone, beside 97.5."""


def spelled_out(source: str) -> bool:
    numbers = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return bool({x for x in numbers if isinstance(x, float)} & (ITS_OWN - {2.5}))


def test_scales_know_their_bounds_and_nothing_else_spells_out_95_percent() -> None:
    files = [
        f for top in ("interp", "probes", "reports", "wind_tunnels", "prompts") for f in (ROOT / top).rglob("*.py")
    ]
    assert len(files) > 300
    assert [str(f) for f in files if spelled_out(f.read_text(encoding="utf-8"))] == []
    assert spelled_out("low, high = np.quantile(x, [0.025, 0.975])") and spelled_out("half = 1.96 * error")
    for scale, value in ((PLAIN, 3.0), (FISHER, 0.4), (UNEXPLAINED, -0.7)):
        low, high = scale.about(value, 0.3) or (np.nan, np.nan)
        assert low < value < high
        assert abs(scale.to(np.array([low, high])) - scale.to(np.array(value))) == pytest.approx([0.3, 0.3])
    assert FISHER.about(1.0, 0.3) is None and UNEXPLAINED.about(1.0, 0.3) is None and PLAIN.about(1.0, 0.0) is None
    assert t_quantile(5) == pytest.approx(stats.t.ppf(0.975, 4)) and t_quantile(3.5) == stats.t.ppf(0.975, 2.5)


@pytest.mark.parametrize(("k", "n"), [(0, 12), (3, 12), (12, 12), (1, 1), (500, 1000)])
def test_bounds_of_a_share_are_clopper_and_pearsons(k, n) -> None:
    exact = stats.binomtest(k, n).proportion_ci(0.95, "exact")
    assert share_bounds(k, n) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize(("n", "p"), [(1, 0.05), (60, 0.05), (200, 0.05), (999, 0.5)])
def test_the_band_of_a_count_is_the_binomial_quantiles(n, p) -> None:
    assert count_band(n, p) == tuple(stats.binom.ppf([0.025, 0.975], n, p))


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


def test_the_maximum_counts_the_observed_value_and_nothing_undefined():
    permuted = np.array([[1.0, 5.0], [2.0, 0.0], [0.0, 1.0]])
    assert maximum_statistic_p(np.array([2.0, 6.0]), permuted).tolist() == [0.75, 0.25]
    p = maximum_statistic_p(np.array([2.0, np.nan]), np.array([[1.0, 9.0], [0.0, 9.0]]))
    assert p[0] == 1 / 3
    assert np.isnan(p[1])
    assert maximum_statistic_p(np.array([0.3]), np.array([[0.1 + 0.2], [0.3 - 1e-16]])).tolist() == [1.0]


def test_excess_is_on_one_scale_and_zero_where_nothing_spreads():
    rng = np.random.default_rng(0)
    permuted = rng.standard_normal((99, 2)) * [1.0, 100.0] + [0.0, 50.0]
    observed, moved = excess(np.array([5.0, 60.0]), permuted)
    together = np.vstack([observed, moved])
    assert np.abs(together.mean(axis=0)).max() < 1e-12 and np.abs(together.std(axis=0) - 1).max() < 1e-12
    # unscaled, the loud statistic's permutations would hide what the quiet one found
    assert maximum_statistic_p(np.array([5.0, 60.0]), permuted)[0] == 1.0 - 1e-2 * (permuted.max(1) < 5).sum()
    assert maximum_statistic_p(observed, moved)[0] == 0.01
    observed, moved = excess(np.array([2.0, np.nan]), np.array([[2.0, 1.0], [2.0, 3.0]]))
    assert observed[0] == 0 and (moved[:, 0] == 0).all() and np.isnan(observed[1])
