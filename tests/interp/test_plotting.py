"""What figures share: intervals in their range, axes of R², a colour scale that carries on both backgrounds."""

import numpy as np
import plotly.colors
import pytest
from interp.reports.plotly.theme import SCHEMES

from interp.plotting import ENTROPY_SCALE, LEAST_R2, Chart, faded, within
from interp.table import Table


def test_charts_are_cut_to_what_can_be_with_profiles_in_faded_colours():
    columns = {name: np.array(values) for name, values in
               {"rho": [0.1, 0.9], "rho_low": [-0.2, 0.8], "rho_high": [0.4, 1.1]}.items()}  # fmt: skip
    table = Table(columns, dict.fromkeys(columns, "1"))
    cut = within(table, "rho")
    assert cut["rho_low"].tolist() == [0.0, 0.8] and cut["rho_high"].tolist() == [0.4, 1.0]
    assert cut["rho"].tolist() == [0.1, 0.9] and table["rho_low"].tolist() == [-0.2, 0.8]
    chart = drawn_chart()
    for values in ([0.2, -0.4, np.nan], [np.nan, -np.inf], []):
        assert chart.limit_r2(np.array(values)) == "" and chart.plot.layout.yaxis.range is None
    assert chart.limit_r2(np.array([0.6, -5e6]), np.array([np.nan])).startswith(" R² below −0.5, ")
    assert chart.plot.layout.yaxis.range == (LEAST_R2, pytest.approx(0.65))
    null_band, null, band, curve = drawn_chart().profile("rho").plot.data
    assert list(null_band.x) == [0, 1, 1, 0] and list(null_band.y) == [0.1, 0.2, 0.0, -0.1]
    assert null_band.showlegend is False and null_band.fill == "toself"
    np.testing.assert_array_equal(null.y, [0.0, 0.1, np.nan])
    assert list(band.x) == [0, 1, 2, 2, 1, 0] and list(band.y) == [0.3, 0.6, 0.9, 0.1, 0.3, 0.0]
    assert list(curve.x) == [0, 1, 2] and list(curve.y) == [0.1, 0.5, 0.4] and curve.name == "measured"
    assert faded("#0a80ff", 0.25) == "rgba(10,128,255,0.25)"


def drawn_chart() -> Chart:
    """Three layers of a number with its interval and its null; the null of the last is not defined."""
    columns = {
        "layer": [0, 1, 2], "rho": [0.1, 0.5, 0.4], "rho_low": [0.0, 0.3, 0.1], "rho_high": [0.3, 0.6, 0.9],
        "rho_null": [0.0, 0.1, np.nan], "rho_null_low": [-0.1, 0.0, np.nan], "rho_null_high": [0.1, 0.2, np.nan],
        "text": ["one", "two", "three"],
    }  # fmt: skip
    table = Table({name: np.array(values) for name, values in columns.items()}, dict.fromkeys(columns, "1"))
    return Chart(table, "layer", "layer", "rho")


def test_dots_profiles_and_lines_carry_their_intervals():
    chart = drawn_chart()
    chart.dots("rho", "measured")
    chart.dots("rho", "across", y=[5, 6, 7])
    up, across = chart.plot.data
    for bars in (up.error_y, across.error_x):
        np.testing.assert_allclose(bars.array, [0.2, 0.1, 0.5])
        np.testing.assert_allclose(bars.arrayminus, [0.1, 0.2, 0.3])
        assert bars.symmetric is False
    assert list(up.x) == [0, 1, 2] and list(up.y) == list(across.x) == [0.1, 0.5, 0.4] and list(across.y) == [5, 6, 7]
    chart = drawn_chart()
    chart.level(0.7, "level")
    chart.diagonal("diagonal", "rho", "rho_high")
    chart.line(0.2, "everywhere")
    level, diagonal, everywhere = chart.plot.data
    assert (list(level.x), list(level.y)) == ([0, 2], [0.7, 0.7])
    assert list(diagonal.x) == list(diagonal.y) == [0.1, 0.9]
    assert list(everywhere.y) == [0.2, 0.2, 0.2] and list(everywhere.x) == [0, 1, 2]


def test_a_model_of_one_layer_shows_its_null_and_its_interval():
    chart = drawn_chart()
    null_band, null, band, curve = chart.of(chart.table.where(chart.table["layer"] == 1)).profile("rho").plot.data
    assert null_band.line.width > 0 and band.line.width > 0, "an area without width cannot be seen"
    assert null.mode == "markers" and list(null.y) == [0.1] and curve.mode == "lines+markers"
    assert drawn_chart().profile("rho").plot.data[0].line.width == 0


def test_points_and_bands_are_named_once_in_the_legend():
    chart = drawn_chart()
    chart.points("rho")
    chart.points("rho", "named")
    unnamed, named = chart.plot.data
    assert list(named.customdata) == ["one", "two", "three"] and list(named.y) == [0.1, 0.5, 0.4]
    assert (unnamed.showlegend, named.showlegend) == (False, True)
    chart = drawn_chart()
    chart.null_band("rho")
    chart.null_band("rho")
    chart.of(chart.table.where(chart.table["layer"] == 2)).null_band("rho", "other")
    assert [trace.showlegend for trace in chart.plot.data] == [True, False, False]


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
