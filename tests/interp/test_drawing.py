"""What figures share: intervals in their range, axes of R², a colour scale that carries on both backgrounds."""

import numpy as np
import plotly.colors
import pytest
from interp.reports.plotly.theme import SCHEMES

from interp.drawing import ENTROPY_SCALE, LEAST_R2, r2_range, within
from interp.table import Table


def test_an_interval_is_cut_to_what_its_statistic_can_be_and_the_table_stays():
    columns = {name: np.array(values) for name, values in
               {"rho": [0.1, 0.9], "rho_low": [-0.2, 0.8], "rho_high": [0.4, 1.1]}.items()}  # fmt: skip
    table = Table(columns, dict.fromkeys(columns, "1"))
    cut = within(table, "rho")
    assert cut["rho_low"].tolist() == [0.0, 0.8] and cut["rho_high"].tolist() == [0.4, 1.0]
    assert cut["rho"].tolist() == [0.1, 0.9] and table["rho_low"].tolist() == [-0.2, 0.8]


def test_an_axis_of_r2_begins_at_its_least_only_where_something_lies_below():
    assert r2_range(np.array([0.2, -0.4]), np.array([np.nan])) is None and r2_range(np.array([])) is None
    assert r2_range(np.array([0.6, -5e6]), np.array([np.nan])) == [LEAST_R2, pytest.approx(0.65)]


def luminance(rgb) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_entropy_can_be_seen_on_both_backgrounds(theme):
    """WCAG 2.1 AA of graphics: 3 to 1."""
    paper = luminance(np.array(plotly.colors.hex_to_rgb(SCHEMES[theme].paper)) / 255)
    scale = [[at, f"rgb{plotly.colors.hex_to_rgb(colour)}"] for at, colour in ENTROPY_SCALE]
    for text in plotly.colors.sample_colorscale(scale, np.linspace(0, 1, 41).tolist()):
        own = luminance(np.array(plotly.colors.unlabel_rgb(text)) / 255)
        low, high = sorted((own, paper))
        assert (high + 0.05) / (low + 0.05) >= 3, text
