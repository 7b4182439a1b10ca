"""The layout of a figure on the page: what the probe said about its axes, in the page's own frame.

Colours, margins and the place of the legend are the page's. Plotly's sliders and menus cannot be reached with the
keyboard, so they leave the figure and are described here for native ones.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .encoding import encode, mapped

_PAGES_OWN = frozenset({"margin", "paper_bgcolor", "plot_bgcolor", "sliders", "template", "updatemenus"})
_LEGEND_PLACE = frozenset({"orientation", "x", "xanchor", "xref", "y", "yanchor", "yref"})
_TITLED_MARGIN = 60  # above panels with titles: the legend, then the titles
_AXIS_LINE = 36  # characters of an axis title
_FEW = 12  # whole numbers along an axis that each get a tick
_DECADES = 2.5  # of a logarithmic axis up to which 2 and 5 are written beside 1
_TICKS = frozenset({"dtick", "nticks", "tickmode", "tickvals", "type"})


def page_layout(layout: Mapping[str, Any], traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A figure's layout without what the page does in its own way."""
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
    """An axis whose title fits beside the plot, whose few whole numbers (layers) have no ticks between them, and on
    which powers of ten are read without counting ticks."""
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
    """How many powers of ten the positive ones among the values span."""
    known = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in values if v.dtype.kind in "iuf"] or [np.ones(1)])
    return float(np.log10(known.max() / known.min())) if known.size else 0.0


def _even_lines(text: str) -> list[str]:
    """A title in as few lines as fit, of about one length."""
    lines = textwrap.wrap(text, _AXIS_LINE)
    narrower = (textwrap.wrap(text, width) for width in range(1, _AXIS_LINE))
    return next((even for even in narrower if len(even) == len(lines)), lines)


def _is_whole(values: np.ndarray) -> bool:
    return values.dtype.kind in "iu" or (values.dtype.kind == "f" and bool((values == np.round(values)).all()))


def controls(layout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sliders and menus of a layout: label, active choice, and what each choice calls with what."""
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
    """Arguments whose first may say of every trace whether it is shown: as `1011`, since a page has hundreds."""
    # with arrays as lists, which every call takes
    packed = encode(mapped(args, lambda value, _: value.tolist() if isinstance(value, np.ndarray) else value))
    shown = packed[0].get("visible") if packed and isinstance(packed[0], dict) else None
    if isinstance(shown, list) and all(isinstance(is_shown, bool) for is_shown in shown):
        packed[0]["visible"] = "".join("01"[is_shown] for is_shown in shown)
    return packed
