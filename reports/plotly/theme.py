"""Colours of the page and its figures: a light and a dark scheme, and the plotly template of each.

Text has a contrast of at least 4.5 to 1, lines of figures 3 to 1. The series follow Okabe and Ito, adjusted until any
two are 18 apart in CIELAB for each kind of colour blindness; the tests measure both. Figures name the colours of
`interp.plotting.PALETTE`, which each scheme replaces by its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from interp.plotting import NULL, PALETTE, faded

from .encoding import mapped

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"
SEQUENTIAL = "Cividis"
DIVERGING = "RdBu"


@dataclass(frozen=True)
class Scheme:
    """The colours of one scheme."""

    paper: str
    panel: str
    ink: str
    muted: str
    rule: str
    accent: str
    warning: str
    failure: str
    success: str
    ring: str
    series: tuple[str, ...]

    def css(self) -> str:
        """The colours as custom properties of CSS, with that of nulls."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("ring", "series")}
        return " ".join(f"--{name}: {colour};" for name, colour in (named | {"null": NULL}).items())


LIGHT = Scheme(
    paper="#fdfdfb", panel="#f3f3ef", ink="#1b1d20", muted="#565b63", rule="#dbdbd4", accent="#0a5fa5",
    warning="#8f4700", failure="#a8201a", success="#1c6b42", ring="rgba(27,29,32,0.4)",
    series=("#0074b8", "#d67200", "#008a63", "#b1538f", "#866013", "#332288", "#7a1f1f", "#3f7ff0"),
)  # fmt: skip
DARK = Scheme(
    paper="#15171a", panel="#1f2226", ink="#e9e9e5", muted="#a6abb3", rule="#363a40", accent="#74b9f4",
    warning="#f2ad62", failure="#ff8f86", success="#70cf99", ring="rgba(233,233,229,0.5)",
    series=("#5ab4e7", "#e4813f", "#1bbb8e", "#bf73a3", "#e4c33f", "#8d93ff", "#c2f2f4", "#c8503c"),
)  # fmt: skip
SCHEMES: Mapping[str, Scheme] = {"light": LIGHT, "dark": DARK}


def template(scheme: Scheme) -> dict[str, Any]:
    """The plotly template of a scheme: fonts, grids, colours, margins."""
    axis = {
        "gridcolor": scheme.rule, "linecolor": scheme.muted, "zerolinecolor": scheme.rule, "zerolinewidth": 1,
        "tickcolor": scheme.muted, "tickfont": {"color": scheme.muted}, "title": {"standoff": 10}, "automargin": True,
        "ticks": "outside", "ticklen": 4,
    }  # fmt: skip
    colorbar = {
        "thickness": 12, "outlinewidth": 0, "tickfont": {"color": scheme.muted}, "ticks": "outside",
        "ticklen": 4, "tickcolor": scheme.muted,
    }  # fmt: skip
    layout = {
        "font": {"family": FONT, "size": 13, "color": scheme.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "colorway": list(scheme.series),
        "colorscale": {"sequential": SEQUENTIAL, "diverging": DIVERGING},
        "coloraxis": {"colorbar": colorbar},
        "hoverlabel": {
            "bgcolor": scheme.panel, "bordercolor": scheme.muted, "align": "left",
            "font": {"family": FONT, "size": 12, "color": scheme.ink},
        },
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 1, "yanchor": "top"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": scheme.muted, "activecolor": scheme.accent},
        "margin": {"l": 8, "r": 8, "t": 24, "b": 8},
        "xaxis": axis,
        "yaxis": axis,
        "annotationdefaults": {"font": {"color": scheme.ink}, "arrowcolor": scheme.muted},
        "shapedefaults": {"line": {"color": scheme.muted}},
    }  # fmt: skip
    filled = {"colorbar": colorbar, "colorscale": SEQUENTIAL}
    # a thin ring separates pale and dark points from the background
    marker = {**filled, "line": {"width": 0.6, "color": scheme.ring}}
    data = {"scatter": [{"marker": marker}], "bar": [{"marker": filled}]}
    data |= {kind: [filled] for kind in ("heatmap", "contour", "histogram2d", "histogram2dcontour")}
    return {"layout": layout, "data": data}


def recoloured(value: Any, scheme: Scheme) -> Any:
    """A figure with the palette's colours, also faded ones, replaced by the scheme's, under `...color`."""

    def own(value: Any, key: str) -> Any:
        if isinstance(value, str) and key.endswith("color"):
            for named, shown in zip(PALETTE, scheme.series, strict=True):
                old, new = (faded(colour, 1.0).removesuffix("1.0)") for colour in (named, shown))  # at any opacity
                value = shown if value.upper() == named else value.replace(old, new, 1)
        return value

    return mapped(value, own)
