"""From a plotly figure to the page's: checked against the bundle, thinned, laid out, encoded.

Plotly's sliders and menus cannot be reached with the keyboard: the page gets a description for native ones.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.errors import named
from interp.probe import Figure

from .encoding import encode, escaped, mapped, texts_escaped
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

_PAGES_OWN = frozenset({"margin", "paper_bgcolor", "plot_bgcolor", "sliders", "template", "updatemenus"})
_LEGEND_PLACE = frozenset({"orientation", "x", "xanchor", "xref", "y", "yanchor", "yref"})
_TITLED_MARGIN = 60  # above panels with titles: the legend, then the titles
_AXIS_LINE = 36  # characters of an axis title
_FEW = 12  # whole numbers along an axis that each get a tick
_DECADES = 2.5  # of a logarithmic axis up to which 2 and 5 are written beside 1
_TICKS = frozenset({"dtick", "nticks", "tickmode", "tickvals", "type"})


@dataclass(frozen=True)
class Plot:
    """A figure for the page: `{data, layout, frames, controls}`, a sentence per thinned trace, columns of panels."""

    content: Mapping[str, Any]
    thinned: tuple[str, ...]
    n_columns: int


def themed(figure: Figure, theme: Literal["light", "dark"]) -> "go.Figure":
    """A probe's figure for a notebook: the page's template, with plotly's own controls."""
    import plotly.graph_objects as go

    own: dict[str, Any] = figure.plot.layout.to_plotly_json()
    data, frames = _traces(figure.plot)
    kept = {key: own[key] for key in ("sliders", "updatemenus") if key in own}
    scheme = named("theme", theme, SCHEMES)
    drawn = texts_escaped({"data": data, "layout": page_layout(own, data) | kept, "frames": frames})
    drawn["layout"] |= {
        "template": template(scheme), "paper_bgcolor": scheme.paper, "title": {"text": escaped(figure.title)},
        "margin": {"t": 90},
    }  # fmt: skip
    shown = go.Figure(recoloured(drawn, scheme))
    if not any(map(_has_points, _in_all(data, frames))):
        shown.add_annotation(text=EMPTY, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)
    return shown


EMPTY = "None of its values is a finite number."
_COORDINATES = ("x", "y", "z", "a", "b", "c", "values")


def undrawable(figure: "go.Figure") -> str | None:
    """The reason why the page cannot draw a figure, or None."""
    data, frames = _traces(figure)
    traces = _in_all(data, frames)
    foreign = sorted({str(trace.get("type", "scatter")) for trace in traces} - TRACE_TYPES)
    if foreign:
        return f"It holds traces of the kind {', '.join(foreign)}; the page draws {', '.join(sorted(TRACE_TYPES))}."
    return None if any(map(_has_points, traces)) else EMPTY


def _has_points(trace: Mapping[str, Any]) -> bool:
    """Whether every coordinate of a trace has some known value."""
    given = [np.asarray(trace[name]) for name in _COORDINATES if _is_array(trace.get(name))]
    return all(
        np.isfinite(v).any() if v.dtype.kind in "iuf" else any(x is not None for x in v.ravel().tolist()) for v in given
    )


def prepare(figure: "go.Figure") -> Plot:
    """A drawable figure for the page."""
    data, frames = _traces(figure)
    own_layout: dict[str, Any] = figure.layout.to_plotly_json()
    layout = page_layout(own_layout, data)
    left_edges = {tuple(a.get("domain", ()))[:1] for name, a in layout.items() if name.startswith("xaxis")}
    shown = [thinned(trace) for trace in data]
    content = {
        "data": [encode(trace) for trace, _ in shown],
        "layout": encode(layout),
        "frames": [{**encode(f), "data": [encode(thinned(trace)[0]) for trace in f["data"]]} for f in frames],
        "controls": controls(own_layout),
    }
    sentences = dict.fromkeys(sentence for _, sentence in shown if sentence)
    return Plot(content, tuple(sentences), n_columns=max(1, len(left_edges)))


def _traces(figure: "go.Figure") -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    data: Any = figure.data
    frames: Any = figure.frames
    plain = [frame.to_plotly_json() for frame in frames]
    return [trace.to_plotly_json() for trace in data], [{**f, "data": list(f.get("data", ()))} for f in plain]


def _in_all(data: list[dict[str, Any]], frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*data, *(trace for frame in frames for trace in frame["data"])]


def thinned(trace: Mapping[str, Any]) -> tuple[Any, str]:
    """A trace with at most `N_POINTS` points, and a sentence that says so; a shorter trace as it is.

    Lines keep evenly spaced points; markers a fixed random choice, since even spacing would always pick the same
    positions of regular sequences. Other kinds of traces are counts or matrices and stay whole.
    """
    n = max((len(trace[axis]) for axis in "xyabc" if _is_array(trace.get(axis))), default=0)
    if n <= N_POINTS or not str(trace.get("type", "scatter")).startswith("scatter"):
        return trace, ""
    if "lines" in str(trace.get("mode", "lines")):
        keep = np.unique(np.linspace(0, n - 1, N_POINTS).astype(int))
    else:
        keep = np.sort(np.random.default_rng(0).choice(n, N_POINTS, replace=False))
    name = f" of “{trace['name']}”" if trace.get("name") else ""
    said = f"{len(keep):,} of the {n:,} points{name} are drawn; the table holds them all."
    return _picked(trace, keep, n), said


def _picked(value: Any, keep: np.ndarray, n: int) -> Any:
    """A trace (or a part of it) with only these entries of every array of `n` entries."""
    if isinstance(value, Mapping):
        return {key: _picked(part, keep, n) for key, part in value.items()}
    if _is_array(value) and len(value) == n:
        return value[keep] if isinstance(value, np.ndarray) else [value[i] for i in keep]
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def page_layout(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A figure's layout without what the page sets itself."""
    kept = {name: value for name, value in layout.items() if name not in _PAGES_OWN}
    kept["legend"] = {k: v for k, v in kept.get("legend", {}).items() if k not in _LEGEND_PLACE}
    if any(note.get("yref") == "paper" and note.get("y", 0) >= 1 for note in kept.get("annotations", ())):
        kept["margin"] = {"t": _TITLED_MARGIN}
    for name in [key for key in kept if re.fullmatch(r"[xy]axis\d*", key)]:
        kept[name] = _axis(kept[name], _values_along(name, traces))
    return kept


def _values_along(axis: str, traces: Sequence[Mapping[str, Any]]) -> list[np.ndarray]:
    letter, name = axis[0], axis.replace("axis", "")
    mine = [t for t in traces if t.get(f"{letter}axis", letter) == name]
    named = [np.asarray(t[letter]) for t in mine if t.get(letter) is not None]
    counted = [np.shape(t["z"]) for t in mine if t.get(letter) is None and np.ndim(t.get("z", 0)) == 2]
    return named + [np.arange(shape["yx".index(letter)]) for shape in counted]


def _axis(axis: Mapping[str, Any], values: Sequence[np.ndarray]) -> dict[str, Any]:
    """An axis with a wrapped title, no ticks between few whole numbers, and labelled powers of ten."""
    title = axis.get("title", {})
    lines = _even_lines(title.get("text") or "")
    framed = {**axis, "title": {**title, "text": "<br>".join(lines)}} if lines else dict(axis)
    values = [v for v in values if v.size > 0]
    whole = bool(values) and all(_is_whole(v) for v in values)
    if whole and not _TICKS & set(axis) and max(v.max() for v in values) - min(v.min() for v in values) <= _FEW:
        framed["dtick"] = 1
    if axis.get("type") == "log" and not {"tickvals", "ticktext"} & set(axis):
        framed |= {"dtick": "D2" if _decades(values) <= _DECADES else 1, "tickformat": "~g"}
    return framed


def _decades(values: Sequence[np.ndarray]) -> float:
    """The powers of ten that the positive values span."""
    known = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values if v.dtype.kind in "iuf"] or [np.ones(1)])
    return float(np.log10(known.max() / known.min())) if known.size else 0.0


def _even_lines(text: str) -> list[str]:
    """A title in as few lines as fit, of similar length."""
    lines = textwrap.wrap(text, _AXIS_LINE)
    narrower = (textwrap.wrap(text, width) for width in range(1, _AXIS_LINE))
    return next((even for even in narrower if len(even) == len(lines)), lines)


def _is_whole(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" or (values.dtype.kind == "f" and bool((values == np.round(values)).all()))


def controls(layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sliders and menus of a layout: label, active choice, and the call of each choice."""
    sliders = [_control("slider", content, content.get("steps", ())) for content in layout.get("sliders", ())]
    return sliders + [
        _control("menu", content, content.get("buttons", ())) for content in layout.get("updatemenus", ())
    ]


def _control(kind: str, content: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    steps = [
        {"label": str(c.get("label", i)), "method": c.get("method", "restyle"), "args": _packed(c.get("args", ()))}
        for i, c in enumerate(choices)
    ]
    label = str(content.get("currentvalue", {}).get("prefix") or content.get("name") or "").strip().rstrip(":=").strip()
    return {"kind": kind, "label": label, "active": int(content.get("active", 0)), "steps": steps}


def _packed(args: Sequence[Any]) -> list[Any]:
    """Arguments of a call, with arrays as lists, and the visibility of traces as `1011`, since a page has hundreds."""
    packed = encode(mapped(args, lambda value, _: value.tolist() if isinstance(value, np.ndarray) else value))
    shown = packed[0].get("visible") if packed and isinstance(packed[0], dict) else None
    if isinstance(shown, list) and all(isinstance(is_shown, bool) for is_shown in shown):
        packed[0]["visible"] = "".join("01"[is_shown] for is_shown in shown)
    return packed
