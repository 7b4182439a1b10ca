"""From a plotly figure to what the page draws: checked against the bundle, thinned, laid out, encoded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.errors import UnknownName
from interp.probe import Figure

from .encoding import encode, escaped, texts_escaped
from .layout import controls, page_layout
from .theme import SCHEMES, recoloured, template

if TYPE_CHECKING:
    import plotly.graph_objects as go

TRACE_TYPES = frozenset({
    "bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour", "image", "pie", "scatter",
    "scatterternary", "violin",
})  # fmt: skip
"""What the vendored cartesian bundle draws."""

N_POINTS = 1_500
"""Points of one scatter trace above which it is thinned."""


@dataclass(frozen=True)
class Plot:
    """A figure ready for the page: its content, a sentence for each thinned trace, its columns of panels.

    `content` is `{data, layout, frames, controls}`; the page makes native sliders and menus of the controls.
    """

    content: Mapping[str, Any]
    thinned: tuple[str, ...]
    n_columns: int


def themed(figure: Figure, theme: Literal["light", "dark"]) -> "go.Figure":
    """A probe's figure as a notebook shows it: the page's template and background, with plotly's own controls."""
    import plotly.graph_objects as go

    own: dict[str, Any] = figure.plot.layout.to_plotly_json()
    data, frames = _traces(figure.plot)
    kept = {key: own[key] for key in ("sliders", "updatemenus") if key in own}
    if theme not in SCHEMES:
        raise UnknownName("theme", theme, SCHEMES)
    scheme = SCHEMES[theme]
    drawn = texts_escaped({"data": data, "layout": page_layout(own, data) | kept, "frames": frames})
    drawn["layout"] |= {
        "template": template(scheme), "paper_bgcolor": scheme.paper, "title": {"text": escaped(figure.title)},
        "margin": {"t": 90},
    }  # fmt: skip
    shown = go.Figure(recoloured(drawn, scheme))
    if not any(map(_has_points, [*data, *(t for f in frames for t in f["data"])])):
        shown.add_annotation(text=EMPTY, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)
    return shown


EMPTY = "None of its values is a finite number."
_COORDINATES = ("x", "y", "z", "a", "b", "c", "values")


def undrawable(figure: "go.Figure") -> str | None:
    """Why the page cannot draw a figure, in words; None where it can."""
    data, frames = _traces(figure)
    traces = [*data, *(t for f in frames for t in f["data"])]
    foreign = sorted({str(trace.get("type", "scatter")) for trace in traces} - TRACE_TYPES)
    if foreign:
        return f"It holds traces of the kind {', '.join(foreign)}; the page draws {', '.join(sorted(TRACE_TYPES))}."
    return None if any(map(_has_points, traces)) else EMPTY


def _has_points(trace: Mapping[str, Any]) -> bool:
    """Whether a trace has something to draw: of every coordinate that it gives a value that is known."""
    given = [np.asarray(trace[name]) for name in _COORDINATES if _is_array(trace.get(name))]
    return all(
        np.isfinite(v).any() if v.dtype.kind in "iuf" else any(x is not None for x in v.ravel().tolist()) for v in given
    )


def prepare(figure: "go.Figure") -> Plot:
    """A figure that `undrawable` has nothing against, as the page draws it."""
    data, frames = _traces(figure)
    own_layout: dict[str, Any] = figure.layout.to_plotly_json()
    layout = page_layout(own_layout, data)
    left_edges = {tuple(a.get("domain", ()))[:1] for name, a in layout.items() if name.startswith("xaxis")}
    content = {
        "data": [encode(_thinned(trace)) for trace in data],
        "layout": encode(layout),
        "frames": [{**encode(f), "data": [encode(_thinned(trace)) for trace in f["data"]]} for f in frames],
        "controls": controls(own_layout),
    }
    sentences = (_sentence(trace) for trace in data)
    return Plot(content, tuple(dict.fromkeys(s for s in sentences if s)), n_columns=max(1, len(left_edges)))


def _traces(figure: "go.Figure") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    data: Any = figure.data
    frames: Any = figure.frames
    plain = [frame.to_plotly_json() for frame in frames]
    return [trace.to_plotly_json() for trace in data], [{**f, "data": list(f.get("data", ()))} for f in plain]


def _thinned(trace: Mapping[str, Any]) -> Any:
    keep = kept_points(trace)
    return trace if keep is None else picked(trace, keep, trace_length(trace))


def _sentence(trace: Mapping[str, Any]) -> str | None:
    keep: np.ndarray | None = kept_points(trace)
    if keep is None:
        return None
    name = f" of “{trace['name']}”" if trace.get("name") else ""
    return f"{len(keep):,} of the {trace_length(trace):,} points{name} are drawn; the table holds them all."


def trace_length(trace: Mapping[str, Any]) -> int:
    """How many points a trace has."""
    return max((len(trace[axis]) for axis in "xyabc" if _is_array(trace.get(axis))), default=0)


def kept_points(trace: Mapping[str, Any]) -> np.ndarray | None:
    """Which points of a long scatter trace are drawn, the same for all traces of its length; None where all are.

    Lines keep evenly spaced points; markers a fixed random choice, since even spacing would pick always the same
    positions out of regular sequences. Other kinds of traces are counts or matrices and stay whole.
    """
    n = trace_length(trace)
    if n <= N_POINTS or not str(trace.get("type", "scatter")).startswith("scatter"):
        return None
    if "lines" in str(trace.get("mode", "lines")):
        return np.unique(np.linspace(0, n - 1, N_POINTS).astype(int))
    return np.sort(np.random.default_rng(0).choice(n, N_POINTS, replace=False))


def picked(value: Any, keep: np.ndarray, n: int) -> Any:
    """A trace (or a part of it) with every array of `n` entries cut down to those to keep."""
    if isinstance(value, Mapping):
        return {key: picked(part, keep, n) for key, part in value.items()}
    if _is_array(value) and len(value) == n:
        return value[keep] if isinstance(value, np.ndarray) else [value[i] for i in keep]
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)
