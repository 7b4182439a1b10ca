"""The strip beside a headline number: everything to one scale."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interp.reports.page.strip import PAD, WIDTH, round_numbers, strip

from interp.findings import Null, Scalar


def scalar(value: float, **more) -> Scalar:
    reasons = {"interval_reason": "none", "null_reason": "none"}
    return Scalar(value, "1", interval_method="jackknife", **{**reasons, **more})


def test_everything_on_a_strip_lies_to_one_scale():
    drawn = strip(scalar(0.5, interval=(0.4, 0.6), null=Null("noise", 0.1, (0.0, 0.2))))
    assert drawn is not None and drawn.interval is not None and drawn.band is not None and drawn.null is not None
    scale = (WIDTH - 2 * PAD) / 0.6
    assert drawn.value == pytest.approx(PAD + 0.5 * scale, abs=0.01)
    assert drawn.interval == pytest.approx((PAD + 0.4 * scale, WIDTH - PAD), abs=0.01)
    assert drawn.band == pytest.approx((PAD, PAD + 0.2 * scale), abs=0.01)
    assert drawn.null == pytest.approx(PAD + 0.1 * scale, abs=0.01)
    assert [(t.label, t.x) for t in drawn.ticks] == [
        (x, pytest.approx(PAD + x * scale, abs=0.01)) for x in (0.0, 0.2, 0.4, 0.6)
    ]


def test_an_interval_alone_makes_a_strip_and_a_bare_value_none():
    drawn = strip(scalar(1.0, interval=(0.0, 2.0)))
    assert drawn is not None and drawn.value == WIDTH / 2 and drawn.null is None and drawn.band is None
    assert strip(scalar(1.0)) is None
    assert strip(scalar(math.nan, null=Null("noise", 0.0, (0.0, 1.0)))) is None
    assert strip(scalar(2.0, null=Null("noise", 2.0, (2.0, 2.0)))) is None


def test_bounds_that_are_not_numbers_are_left_out():
    drawn = strip(scalar(1.0, interval=(math.nan, 2.0), null=Null("noise", 0.0, (math.nan, math.nan))))
    assert drawn is not None and drawn.interval is None and drawn.band is None and drawn.null == PAD


@given(st.floats(-1e3, 1e3), st.floats(1e-7, 1e3))
def test_ticks_that_are_written_do_not_touch(value, width):
    drawn = strip(scalar(value, interval=(value, value + width)))
    assert drawn is not None and drawn.ticks
    assert all(8 * len(b.text) <= b.x - a.x for a, b in itertools.pairwise(drawn.ticks))


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_round_and_inside(low, width):
    ticks = round_numbers(low, low + width)
    if low + width == low or width < abs(low) * 1e-9:
        return
    slack = 1e-9 * max(abs(low), width)
    assert 2 <= len(ticks) <= 7
    assert all(low - slack <= t <= low + width + slack for t in ticks)
    step = ticks[1] - ticks[0]
    assert float(f"{step / 10 ** math.floor(math.log10(step) + 1e-6):.3g}") in (1.0, 2.0, 5.0)
