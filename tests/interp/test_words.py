"""Numbers as a reader sees them."""

import math

import numpy as np
import pytest

from interp.words import cell, short, with_unit


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


def test_cells_write_whole_numbers_whole_and_truth_in_words():
    assert [cell(v) for v in (12345678, -3, 0.123456, True, None, "x", math.nan)] == [
        "12345678", "−3", "0.1235", "yes", "–", "x", "–",
    ]  # fmt: skip


def test_pure_numbers_have_no_unit():
    assert [with_unit("2", unit) for unit in ("bits", "1", "label", "")] == ["2 bits", "2", "2", "2"]
