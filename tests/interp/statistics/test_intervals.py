"""The one place that knows of 95 %: shares and counts against SciPy, and a walk that finds no other place."""

import ast
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from interp.statistics.intervals import FISHER, PLAIN, UNEXPLAINED, count_band, share_bounds, t_quantile

ROOT = Path(__file__).parents[3]
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
