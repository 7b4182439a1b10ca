"""Courses of a training on a handful of numbers: distances, steps, and two courses compared with one another."""

import numpy as np
import pytest
from interp.probes.dynamics.training_curves import (
    EPSILONS,
    Curve,
    compare,
    interval_of,
    settled,
    value_at,
)

STEPS = np.array([0, 9, 99])
"""log(1 + step) is 0, 1 and 2 in units of log 10."""


def course(*rows):
    return Curve(np.array(rows, dtype=np.float64), "x")


def test_a_step_is_interpolated_on_the_scale_of_the_logarithm():
    curve = np.array([1.0, 0.6, 0.0])
    assert settled(STEPS, curve, 0.3) == pytest.approx(10**1.5 - 1)
    assert interval_of(STEPS, curve, 0.3) == (9, 99)
    assert value_at(STEPS, curve, np.array(10**1.25 - 1)) == pytest.approx(0.45)
    assert np.isnan(value_at(STEPS, curve, np.array(np.nan)))
    # what lies at ε has settled
    assert settled(STEPS, np.array([1.0, 0.3, 0.0]), 0.3) == pytest.approx(9)
    assert interval_of(STEPS, np.array([1.0, 0.3, 0.0]), 0.3) == (0, 9)
    assert settled(STEPS, np.array([1.0, 0.5, 0.3]), 0.3) == pytest.approx(99)
    assert np.isnan(settled(STEPS, np.array([1.0, 0.2, 0.31]), 0.3))
    assert np.isnan(settled(STEPS, np.array([1.0, np.nan, 0.0]), 0.3))
    assert np.isnan(settled(STEPS, np.array([0.0, 1.0, 0.0]), 0.3)), "it begins where it ends"
    assert settled(STEPS, np.array([1.0, -0.5, 0.0]), 0.3) > 9, "below its end it counts by its distance"
    assert interval_of(STEPS, np.array([1.0, 0.0, 0.5]), 0.3) is None


def test_two_courses_are_compared_on_every_resample_of_the_prompts():
    a, b = course([2, 1, 0], [2, 0, 0]), course([3, 3, 0], [5, 4, 0])
    weights = np.array([[1, 1], [2, 0], [0, 2]])
    found = compare(STEPS, a, b, 0.3, weights)

    def index(one, other):
        one, other = (np.array(x, dtype=np.float64) for x in (one, other))
        at = float(settled(STEPS, other, 0.3))
        return float(settled(STEPS, one, 0.3)) / at, float(value_at(STEPS, one, np.array(at)))

    # means (2, .5, 0) and (4, 3.5, 0): settled where log10(1 + step) is (1 − .3) / .75 and 1 + .575 / .875
    assert found.index == pytest.approx((10 ** (0.7 / 0.75) - 1) / (10 ** (1 + 0.575 / 0.875) - 1))
    assert (found.index, found.left) == pytest.approx(index([2, 0.5, 0], [4, 3.5, 0]))
    by_resample = [index([2, 0.5, 0], [4, 3.5, 0]), index([2, 1, 0], [3, 3, 0]), index([2, 0, 0], [5, 4, 0])]
    np.testing.assert_allclose(np.stack([found.resampled, found.left_resampled], axis=1), by_resample)


def test_a_course_that_does_not_settle_has_no_index():
    assert tuple(sorted(EPSILONS, reverse=True)) == EPSILONS and all(0 < e < 1 for e in EPSILONS)
    found = compare(STEPS, course([1, 1, 1]), course([1, 0, 0]), 0.1, np.ones((1, 1), int))
    assert np.isnan(found.index) and found.left == pytest.approx(1)
