"""Colours: legible, and told apart by colour-blind readers."""

import itertools

import numpy as np
import pytest
from interp.reports.plotly.theme import DARK, LIGHT, Scheme, recoloured, template

from interp.plotting import NULL, PALETTE, faded

SCHEMES = pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])

# Viénot, Brettel and Mollon 1999, in linear RGB: what a reader without one kind of cone sees.
PROTAN = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
DEUTAN = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])


def linear(colour: str) -> np.ndarray:
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2.1 contrast ratio."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@SCHEMES
def test_series_text_and_nulls_stand_out_from_page_and_panels(scheme: Scheme):
    for colour in (scheme.ink, scheme.muted, scheme.accent, scheme.warning, scheme.failure, scheme.success):
        assert contrast(colour, scheme.paper) >= 4.5
        assert contrast(colour, scheme.panel) >= 4.5
    assert min(contrast(colour, scheme.paper) for colour in scheme.series) >= 3
    # The grey of a null stands out from the page too, and every series is told from it, if not by its dashes.
    assert contrast(NULL, scheme.paper) >= 3
    for sight in (np.eye(3), PROTAN, DEUTAN):
        grey = cielab(sight @ linear(NULL))
        assert min(np.linalg.norm(cielab(sight @ linear(c)) - grey) for c in scheme.series) > 10


@SCHEMES
@pytest.mark.parametrize("sight", [np.eye(3), PROTAN, DEUTAN], ids=["all cones", "no long", "no middle"])
def test_neighbouring_series_are_told_apart_by_every_sight(scheme: Scheme, sight):
    lab = [cielab(sight @ linear(colour)) for colour in scheme.series]
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2)]
    assert min(distances) > 18  # 2.3 is just noticeable


def cielab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.9505, 1.0, 1.089], 1e-9, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@SCHEMES
def test_the_palette_and_the_template_are_those_of_the_scheme(scheme: Scheme):
    assert len(scheme.series) == len(PALETTE)
    for named, own in zip(PALETTE, scheme.series, strict=True):
        given = {"line": {"color": named}, "marker": {"color": [named, 3.0]}, "fillcolor": faded(named, 0.25)}
        wanted = {"line": {"color": own}, "marker": {"color": [own, 3.0]}, "fillcolor": faded(own, 0.25)}
        assert recoloured({**given, "text": named}, scheme) == {**wanted, "text": named}
    assert recoloured({"color": "#123456", "size": 4}, scheme) == {"color": "#123456", "size": 4}
    import plotly.graph_objects as go

    made = go.layout.Template(template(scheme))
    assert made.layout.font.color == scheme.ink and made.layout.colorway == scheme.series
    assert made.layout.xaxis.gridcolor == scheme.rule
