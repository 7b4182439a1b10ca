"""A figure as plain JSON, with the text of data escaped.

Plotly reads a small HTML in every text. Titles, annotations and hover templates are the probe's own words and may use
bare `<br> <b> <i> <sub> <sup> <extra>`. Names, categories and `customdata` are data and are escaped. `text` and
`hovertext` are data that a probe may have composed: `<br>` breaks the line, escaped text stays, the rest is escaped.
"""

import base64
import html
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from interp.formatting import printable

_OWN_WORDS = frozenset({"hovertemplate", "texttemplate", "title", "annotations"})
_COMPOSED = frozenset({"hovertext", "text"})
_VERBATIM = re.compile(r"format$|^operation$")  # "<" and ">" are syntax in number formats
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|#x27|#39);")
_KEPT = re.compile(rf"(</?(?:br|b|i|sub|sup|extra)/?>|{_ENTITY.pattern})")
_LINE, _N_LINES = 64, 6


def encode(value: Any) -> Any:
    """Plain JSON values: numeric arrays as plotly's typed arrays, texts escaped by their place."""
    return mapped(texts_escaped(value), _plain)


def texts_escaped(value: Any, key: str = "", own: bool = False) -> Any:
    """The figure with its texts escaped by their place: `key` is the name of the value, `own` marks own words."""
    if isinstance(value, Mapping):
        return {
            str(k): texts_escaped(v, str(k), own or not _OWN_WORDS.isdisjoint(str(k).split(".")))
            for k, v in value.items()
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value
    if isinstance(value, np.ndarray | list | tuple):
        # an array of templates may mix data and markup: escape it all
        return [texts_escaped(v, key, own and key == "annotations") for v in value]
    if isinstance(value, np.generic):
        return texts_escaped(value.item(), key, own)
    if value is None or isinstance(value, bool | int | float):
        return value
    return _text(value, key, own) if isinstance(value, str) else str(value)


def mapped(value: Any, leaf: Callable[[Any, str], Any], key: str = "") -> Any:
    """A part of a figure with every value `x`, under the name `key`, replaced by `leaf(x, key)`."""
    if isinstance(value, Mapping):
        return {name: mapped(part, leaf, name) for name, part in value.items()}
    return [mapped(part, leaf, key) for part in value] if isinstance(value, list | tuple) else leaf(value, key)


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, np.ndarray):
        return _typed(value)
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else None
    return value


def _typed(array: np.ndarray) -> Any:
    """`{dtype, bdata, shape}` in single precision, a third of the size of written numbers."""
    if array.size == 0:
        return []
    kind = "f4" if array.dtype.kind == "f" or np.abs(array).max() >= 2**31 else "i4"
    with np.errstate(over="ignore"):  # beyond its range, as ends of intervals over few clusters are: not drawn
        single = array.astype(f"<{kind}")
    content = {"dtype": kind, "bdata": base64.b64encode(single.tobytes()).decode()}
    return content if array.ndim == 1 else {**content, "shape": ", ".join(map(str, array.shape))}


def _text(text: str, key: str, own: bool) -> str:
    if _VERBATIM.search(key):
        return text
    text = printable(text)
    if own:
        return "".join(x if _KEPT.fullmatch(x) else escaped(x) for x in _KEPT.split(text))
    if key in _COMPOSED:
        return "<br>".join(_wrapped(_ENTITY.sub(lambda m: html.unescape(m[0]), part)) for part in text.split("<br>"))
    return _wrapped(text) if key == "customdata" else escaped(text)


def _wrapped(text: str) -> str:
    """A text of the data, escaped, in lines that fit beside a point, and cut if very long."""
    if len(text) <= _LINE:
        return escaped(text)
    lines = textwrap.wrap(text, _LINE, max_lines=_N_LINES, placeholder=" …")
    return "<br>".join(escaped(line) for line in lines)


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
