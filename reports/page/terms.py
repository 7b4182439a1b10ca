"""Terms of a first screen, each explained where it stands first: those of `terms.toml` whose pattern occurs there."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_TERMS = tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8"))


def explained(parts: Mapping[Any, Iterable[str]]) -> dict[Any, dict[str, str]]:
    """The terms that occur in each part of a page and in none before it, with their meanings."""
    left, found = dict(_TERMS), {}
    for part, texts in parts.items():
        shown = "\n".join(texts)
        first = [term for term, of in left.items() if re.search(of["pattern"], shown, re.IGNORECASE)]
        found[part] = {term: left.pop(term)["meaning"] for term in first}
    return found
