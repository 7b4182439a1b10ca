"""The content-security policy of a page, and JSON that cannot end its script element."""

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """A policy that allows only these inline scripts and style sheets, by hash.

    Plotly needs `style` attributes, an empty style sheet, and for its picture export `data:` and `blob:`.
    """
    directives = {
        "default-src": ["'none'"],
        "script-src": [_hash(script) for script in scripts],
        "style-src-elem": [_hash(style) for style in (*styles, "")],
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["data:", "blob:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def address(path: str) -> str:
    """A relative path for a link; with `./` no name is read as a scheme."""
    return "./" + quote(path)


def script_json(value: Any) -> str:
    """JSON for a script element: no character in it can end the element or open a comment."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
