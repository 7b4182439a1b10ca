"""What keeps a page from running or fetching anything but its own: its policy, and JSON that cannot leave its tag."""

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """The content-security policy of a page with these inline scripts and style sheets, and nothing else.

    Scripts and sheets run by hash alone. Plotly sets `style` attributes (no element of ours has one) and opens an empty
    style sheet of its own, which the hash of the empty text admits; its picture export needs `data:` and `blob:`.
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
    """A relative path as a link has it; with `./` in front no name can be taken for a scheme."""
    return "./" + quote(path)


def script_json(value: Any) -> str:
    """JSON for a script element: no character in it can end the element or open a comment."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
