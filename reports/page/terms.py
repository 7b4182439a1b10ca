"""Terms of a first screen, each explained in one line: those of `terms.toml` whose pattern occurs on it."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

_TERMS = tomllib.loads(Path(__file__).with_name("terms.toml").read_text(encoding="utf-8"))


def terms_of(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The terms that occur in some texts, with their meanings."""
    shown = "\n".join(texts)
    return tuple((term, of["meaning"]) for term, of in _TERMS.items() if re.search(of["pattern"], shown, re.IGNORECASE))
