"""From a plotly figure to what the page draws: plain JSON, thinned, with the data's own text shown to the letter.

Plotly reads a small HTML in every text it shows. Titles, annotations and hover templates are the probe's own words and
may use bare `<br> <b> <i> <sub> <sup> <extra>`. Names, categories and `customdata` are data and are escaped, so that a
prompt that is HTML appears as it was written. `text` and `hovertext` are data that a probe may have put together:
`<br>` breaks the line, what is escaped already stays so, and all else is escaped.
"""

import base64
import html
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

TRACE_TYPES = frozenset(
    "bar box contour heatmap histogram histogram2d histogram2dcontour image pie scatter scatterternary violin".split()
)
"""What the vendored cartesian bundle draws."""

N_POINTS = 2_000
"""Points of one scatter trace above which it is thinned."""

_COMPOSED = frozenset({"hovertext", "text"})
_ESCAPED = re.compile(r"&(?:amp|lt|gt|quot|#x27|#39);")
_OWN_WORDS = frozenset({"hovertemplate", "texttemplate", "title", "annotations"})
_VERBATIM = re.compile(r"format$|^operation$")  # "<" and ">" are syntax in number formats
_BARE_TAG = re.compile(r"&lt;(/?(?:br|b|i|sub|sup|extra)/?)&gt;")
_LINE, _N_LINES = 64, 6
_AXIS_LINE = 42  # characters of an axis title
_FEW = 12  # whole numbers along an axis that each get a tick
_LEGEND_PLACE = frozenset({"orientation", "x", "xanchor", "xref", "y", "yanchor", "yref"})
_TITLED_MARGIN = 60  # above panels with titles: the legend, then the titles


@dataclass(frozen=True)
class Plot:
    """A figure ready for the page: its content, a sentence for each thinned trace, its columns of panels.

    `content` is `{data, layout, frames, controls}`. Plotly's sliders and menus cannot be reached by keyboard, so they
    leave the layout and stand in `controls`, for which the page makes native ones.
    """

    content: Mapping[str, Any]
    thinned: tuple[str, ...]
    n_columns: int


def undrawable(figure: "go.Figure") -> str | None:
    """Why the page cannot draw a figure, in words; None where it can."""
    traces = [*figure.data, *(trace for frame in figure.frames for trace in frame.data or ())]
    foreign = sorted({str(trace.type) for trace in traces} - TRACE_TYPES)
    if not foreign:
        return None
    drawn = ", ".join(sorted(TRACE_TYPES))
    return f"It holds traces of the kind {', '.join(foreign)}; the page draws {drawn}."


def prepare(figure: "go.Figure") -> Plot:
    """Thin, escape and encode a figure that `undrawable` has nothing against."""
    thinned: list[str] = []
    traces = [_trace(trace.to_plotly_json(), thinned) for trace in figure.data]
    frames = []
    for frame in figure.frames:
        content = frame.to_plotly_json()
        moved = [_trace(trace, []) for trace in content.pop("data", ())]
        frames.append({**_encode(content), "data": moved})
    layout, controls = _layout(figure)
    columns = len({(axis.domain or (0,))[0] for axis in figure.select_xaxes()})
    content = {"data": traces, "layout": _encode(layout), "frames": frames, "controls": controls}
    return Plot(content, tuple(dict.fromkeys(thinned)), n_columns=columns)


def _layout(figure: "go.Figure") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The layout without what the page does in its own way (colours, margins, the place of the legend), and controls."""
    layout = figure.layout.to_plotly_json()
    for name in ("template", "margin", "paper_bgcolor", "plot_bgcolor"):
        layout.pop(name, None)
    layout["legend"] = {k: v for k, v in layout.get("legend", {}).items() if k not in _LEGEND_PLACE}
    if any(note.get("yref") == "paper" and note.get("y", 0) >= 1 for note in layout.get("annotations", ())):
        layout["margin"] = {"t": _TITLED_MARGIN}
    for name in [key for key in layout if re.fullmatch(r"[xy]axis\d*", key)]:
        layout[name] = _axis(layout[name], name, figure)
    controls = [_control("slider", c, "steps") for c in layout.pop("sliders", ())]
    return layout, controls + [_control("menu", c, "buttons") for c in layout.pop("updatemenus", ())]


def _axis(axis: Mapping[str, Any], name: str, figure: "go.Figure") -> dict[str, Any]:
    """An axis whose title fits beside the plot, and whose few whole numbers (layers) have no ticks between them."""
    title = axis.get("title", {})
    if len(title.get("text") or "") > _AXIS_LINE:
        axis = {**axis, "title": {**title, "text": "<br>".join(textwrap.wrap(title["text"], _AXIS_LINE))}}
    letter, short_name = name[0], name.replace("axis", "")
    values = [np.asarray(t[letter]) for t in figure.data if (t[f"{letter}axis"] or letter) == short_name and t[letter] is not None] if not axis.get("type") else []
    whole = bool(values) and all(v.size and v.dtype.kind in "iu" for v in values)
    chosen = {"dtick", "tickvals", "tickmode", "nticks"} & set(axis)
    if whole and not chosen and max(v.max() for v in values) - min(v.min() for v in values) <= _FEW:
        return {**axis, "dtick": 1}
    return dict(axis)


def _control(kind: str, content: Mapping[str, Any], choices: str) -> dict[str, Any]:
    """A slider or menu: its label, the active choice, and for each choice what plotly method to call with what."""
    steps = [
        {"label": str(step.get("label", i)), "method": step.get("method", "restyle"), "args": _call(step.get("args"))}
        for i, step in enumerate(content.get(choices, ()))
    ]
    label = str(content.get("currentvalue", {}).get("prefix", "")).strip().rstrip(":=").strip()
    return {"kind": kind, "label": label, "active": int(content.get("active", 0)), "steps": steps}


def _call(args: Any) -> Any:
    """Arguments of a plotly call: escaped as the figure is, arrays as lists, which every call takes."""
    if isinstance(args, Mapping):
        return {key: _call(value) for key, value in args.items()}
    if isinstance(args, list | tuple | np.ndarray):
        return [_call(value) for value in (args.tolist() if isinstance(args, np.ndarray) else args)]
    return _encode(args)


def _trace(trace: dict[str, Any], thinned: list[str]) -> dict[str, Any]:
    keep = _kept(trace)
    if keep is not None:
        n = _length(trace)
        name = f" of “{trace['name']}”" if trace.get("name") else ""
        thinned.append(f"{len(keep):,} of the {n:,} points{name} are drawn; the table holds them all.")
        trace = _picked(trace, keep, n)
    return _encode(trace)


def _length(trace: Mapping[str, Any]) -> int:
    return max((len(trace[axis]) for axis in "xyabc" if _is_array(trace.get(axis))), default=0)


def _kept(trace: Mapping[str, Any]) -> np.ndarray | None:
    """Which points of a long scatter trace are drawn; the same ones for every trace of this length.

    Lines keep evenly spaced points; markers a fixed random choice, since even spacing would pick always the same
    positions out of regular sequences.
    """
    n = _length(trace)
    if n <= N_POINTS or not str(trace.get("type", "scatter")).startswith("scatter"):
        return None
    if "lines" in str(trace.get("mode", "lines")):
        return np.unique(np.linspace(0, n - 1, N_POINTS).astype(int))
    return np.sort(np.random.default_rng(0).choice(n, N_POINTS, replace=False))


def _picked(value: Any, keep: np.ndarray, n: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _picked(part, keep, n) for key, part in value.items()}
    if _is_array(value) and len(value) == n:
        return value[keep] if isinstance(value, np.ndarray) else [value[i] for i in keep]
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _encode(value: Any, key: str = "", own: bool = False) -> Any:
    """Plain JSON values; numeric arrays as plotly's typed arrays, texts escaped by where they stand."""
    if isinstance(value, Mapping):
        return {str(k): _encode(v, str(k), own or k in _OWN_WORDS) for k, v in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return _typed(value)
    if isinstance(value, np.ndarray | list | tuple):
        # An array of templates holds data beside markup, and the two cannot be told apart: escape it all.
        return [_encode(v, key, own and key == "annotations") for v in value]
    if isinstance(value, np.generic):
        return _encode(value.item(), key, own)
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else None
    if isinstance(value, str):
        return _text(value, key, own)
    return value if value is None or isinstance(value, bool | int) else str(value)


def _typed(array: np.ndarray) -> Any:
    """`{dtype, bdata, shape}`: a third of the size of written numbers. Single precision is enough for a screen."""
    if array.size == 0:
        return []
    kind = "f4" if array.dtype.kind == "f" or np.abs(array).max() >= 2**31 else "i4"
    content = {"dtype": kind, "bdata": base64.b64encode(array.astype(f"<{kind}").tobytes()).decode()}
    return content if array.ndim == 1 else {**content, "shape": ", ".join(map(str, array.shape))}


def _text(text: str, key: str, own: bool) -> str:
    if _VERBATIM.search(key):
        return text
    if own:
        return _BARE_TAG.sub(r"<\1>", escaped(text))
    if key in _COMPOSED:
        return "<br>".join(_wrapped(_ESCAPED.sub(lambda m: html.unescape(m[0]), part)) for part in text.split("<br>"))
    return _wrapped(text) if key == "customdata" else escaped(text)


def _wrapped(text: str) -> str:
    """A text of the data, escaped, in lines that fit beside a point; the end of a very long one is left out."""
    if len(text) <= _LINE:
        return escaped(text)
    lines = textwrap.wrap(text, _LINE, max_lines=_N_LINES, placeholder=" …")
    return "<br>".join(escaped(line) for line in lines)


def escaped(text: str) -> str:
    """A text that plotly shows to the letter."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
