"""Terms of a first screen, each explained where it stands first: those of `terms.toml` whose pattern occurs there."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

_TERMS = tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8"))


def explained(parts: Sequence[Iterable[str]]) -> list[dict[str, str]]:
    """The terms that occur in each part of a page and in none before it, with their meanings."""
    known: set[str] = set()
    found = []
    for part in parts:
        shown = "\n".join(part)
        matching = {term for term, of in _TERMS.items() if re.search(of["pattern"], shown, re.IGNORECASE)}
        found.append({term: of["meaning"] for term, of in _TERMS.items() if term in matching - known})
        known |= matching
    return found
