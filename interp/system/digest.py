"""A short hash of a configuration."""

import hashlib
import json
from typing import Any


def digest_of(content: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of plain JSON values, whatever the order of their keys."""
    words = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(words.encode()).hexdigest()[:16]
