"""Numbers as a reader sees them."""

import math

import numpy as np
import pytest

from interp.findings import Interval, Null, Scalar
from interp.formatting import cell, last_part, p_equals, p_value, short, short_name, with_unit


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.4712, "0.471"), (0.5, "0.5"), (69.14, "69.1"), (1234.5, "1234"), (999999.0, "999999"), (0.0, "0"),
        (-0.14, "−0.14"), (1e-4, "0.0001"), (3.14159e-7, "3.14e−7"), (2.5e9, "2.5e9"), (math.nan, "–"),
        (math.inf, "∞"), (-math.inf, "−∞"), (100.0, "100"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_no_idle_zeros(number, text):
    assert short(number) == text


@pytest.mark.parametrize("number", np.geomspace(1e-9, 1e9, 37))
def test_no_number_loses_more_than_half_of_its_third_digit(number):
    read = float(short(number).replace("−", "-"))
    assert abs(read - number) <= 0.5e-2 * number


def test_numbers_are_written_for_readers_with_interval_and_null():
    assert [cell(v) for v in (12345678, -3, 0.123456, True, None, "x", math.nan)] == [
        "12345678", "−3", "0.123", "yes", "–", "x", "–",
    ]  # fmt: skip
    assert [with_unit("2", unit) for unit in ("bits", "1", "fraction", "label", "")] == ["2 bits", "2", "2", "2", "2"]
    assert [p_value(p) for p in (0.0312, 0.002, 1e-5, 1e-6)] == ["0.031", "0.002", "1e−5", "< 1e−6"]
    assert [p_equals(p) for p in (0.002, 1e-6)] == ["p = 0.002", "p < 1e−6"]
    whole = Scalar.of(0.5, "bits", Interval(0.4, 0.6, "bootstrap over prompts"), Null("noise", 0.1, (0.0, 0.2)), p=0.01)
    assert (whole.interval, whole.interval_method, whole.p) == ((0.4, 0.6), "bootstrap over prompts", 0.01)
    assert whole.cells == ("0.5 bits", "0.4 to 0.6", "0.1 (0 to 0.2)", "0.01", "")
    bare = Scalar.of(0.5, "1", "weights only", "an identity", p=math.nan, n=1200, n_unit="head", n_distinct_rows=30)
    assert bare.p is None
    assert bare.cells == ("0.5", "none: weights only", "none: an identity", "", "1,200 heads, 30 distinct rows")
    none = Scalar.undefined("one layer", "bits", underpowered=True, meaning="A trend.")
    assert math.isnan(none.value) and none.cells[:3] == ("– bits (underpowered)", "none: one layer", "none: one layer")


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("C:\\models\\base", "base"), ("C:/models/base/", "base"), (".\\base", "base"),
        ("\\\\server\\share\\models\\base", "base"),
        ("/models/base/", "base"), ("~/base", "base"), ("org/base", "org/base"),
        ("tunnel:hmm", "tunnel:hmm"), (".", "."), ("", ""),
    ],
)  # fmt: skip
def test_of_a_path_of_any_system_the_end_is_shown_and_a_hub_id_whole(model, shown):
    assert short_name(model) == shown
    assert last_part(model) == shown.split("/")[-1]
