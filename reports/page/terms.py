"""Terms of a first screen, each explained where it stands first: those of `terms.toml` whose pattern occurs there."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_TERMS = tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8"))


def explained(parts: Mapping[Any, Iterable[str]]) -> dict[Any, dict[str, str]]:
    """The terms that occur in each part of a page and in none before it, with their meanings."""
    known: set[str] = set()
    found = {}
    for part, texts in parts.items():
        shown = "\n".join(texts)
        matching = {term for term, of in _TERMS.items() if re.search(of["pattern"], shown, re.IGNORECASE)}
        found[part] = {term: of["meaning"] for term, of in _TERMS.items() if term in matching - known}
        known |= matching
    return found
