"""The strip beside a headline number: everything to one scale."""

import math
from dataclasses import replace

import pytest
from interp.reports.page.strip import PAD, WIDTH, strip

from interp.findings import Null, Scalar


def scalar(value: float, **more) -> Scalar:
    reasons = {"interval_reason": "none", "null_reason": "none"}
    return Scalar(value, "1", interval_method="jackknife", **{**reasons, **more})


def test_strips_lie_to_one_scale_and_leave_out_what_is_not_there():
    drawn = strip(scalar(0.5, interval=(0.4, 0.6), null=Null("noise", 0.1, (0.0, 0.2))))
    assert drawn is not None and drawn.interval is not None and drawn.band is not None and drawn.null is not None
    scale = (WIDTH - 2 * PAD) / 0.6
    assert drawn.value == pytest.approx(PAD + 0.5 * scale, abs=0.01)
    assert drawn.interval == pytest.approx((PAD + 0.4 * scale, WIDTH - PAD), abs=0.01)
    assert drawn.band == pytest.approx((PAD, PAD + 0.2 * scale), abs=0.01)
    assert drawn.null == pytest.approx(PAD + 0.1 * scale, abs=0.01)
    drawn = strip(replace(scalar(8.0, interval=(6.0, 10.0)), unit="bits"))
    assert drawn is not None and drawn.zero == PAD
    assert drawn.value == pytest.approx(PAD + 0.8 * (WIDTH - 2 * PAD), abs=0.01)
    below = strip(replace(scalar(-2.0, interval=(-4.0, -1.0)), unit="bits"))
    assert below is not None and below.zero == WIDTH - PAD
    drawn = strip(scalar(1.0, interval=(0.0, 2.0)))
    assert drawn is not None and drawn.value == WIDTH / 2 and drawn.null is None and drawn.band is None
    assert strip(scalar(1.0)) is None
    assert strip(scalar(math.nan, null=Null("noise", 0.0, (0.0, 1.0)))) is None
    assert strip(scalar(2.0, null=Null("noise", 2.0, (2.0, 2.0)))) is None
    drawn = strip(scalar(1.0, interval=(math.nan, 2.0), null=Null("noise", 0.0, (math.nan, math.nan))))
    assert drawn is not None and drawn.interval is None and drawn.band is None and drawn.null == PAD


@pytest.mark.parametrize("value", [0.02, 0.5, 0.98])
def test_fractions_share_a_scale_from_zero_to_one(value):
    drawn = strip(replace(scalar(value, interval=(value - 0.01, value + 0.01)), unit="fraction"))
    assert drawn is not None and drawn.value == pytest.approx(PAD + value * (WIDTH - 2 * PAD), abs=0.01)
