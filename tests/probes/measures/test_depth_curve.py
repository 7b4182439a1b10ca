"""Curves over depth: exact values, intervals over prompts, and no p."""

import numpy as np
import pytest
from interp.probes.measures.depth_curve import DEPTH, depth_estimates, depth_quantity, depth_statistics

from interp.need import Need
from interp.statistics.units import Units
from interp.testing import Shape, synthetic_capture


def named(curve):
    return dict(zip(DEPTH, depth_statistics(np.array(curve, dtype=float)), strict=True))


def test_depth_statistics_are_those_of_the_formula_or_undefined():
    assert named([4, 3, 2, 1]) == pytest.approx(
        {"reduction": 0.75, "correlation": -1, "area": 2.5 / 4, "largest_drop": 1}
    )
    curves = np.random.default_rng(0).uniform(1, 2, (5, 4))
    assert np.allclose(depth_statistics(curves), [depth_statistics(c) for c in curves], rtol=0, atol=1e-12)
    found = named([2, 2, 2])
    assert (found["reduction"], found["area"], found["largest_drop"]) == (0, 1, 0)
    assert np.isnan(found["correlation"])
    assert all(np.isnan(value) for value in named([3]).values())
    found = named([0, 1, 2])
    assert np.isnan(found["reduction"]) and np.isnan(found["area"])
    assert found["correlation"] == pytest.approx(1)
    found = named([3, 1])
    assert np.isnan(found["correlation"]) and found["reduction"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", DEPTH)
def test_a_number_over_depth_has_an_interval_over_prompts_and_no_p(name):
    rng = np.random.default_rng(0)
    rows = synthetic_capture([Need("v")], Shape(40)).rows
    units = Units.of(rows, "prompt", 99, rng)
    curves = np.linspace(3, 1, 4) + 0.1 * rng.standard_normal((40, 4))
    which = DEPTH.index(name)
    value = float(depth_statistics(curves.mean(axis=0))[which])
    found = depth_quantity(name, "").scalar(depth_estimates(curves, units)[name])
    assert found.value == pytest.approx(value)
    assert found.p is None and found.null is None and "one draw of a depth profile" in found.null_reason
    assert found.standing() == "unjudged" and found.interval[0] <= value <= found.interval[1]
    flat = dict(zip(DEPTH, depth_statistics(np.full(4, 2.0) + 1e-9 * np.array([1, -1, -1, 1])), strict=True))
    assert found.reference is None or found.reference == pytest.approx(flat[name], abs=1e-6)
