"""What a number is called where there is room for a few words: `names.toml`, or the first clause of its meaning."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from interp.records.answers import clause

_NO_FIRST = "_no_first"


def label(probe: str, name: str, meaning: str) -> str:
    """`attention to the first position`; `..., without the first position` of the variants that leave it out."""
    bare = name.replace(_NO_FIRST, "")
    known = _names().get(probe, {}).get(bare)
    if known is None:
        return clause(name, meaning)
    return known if bare == name else f"{known}, without the first position"


@cache
def _names() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((Path(__file__).parent.parent / "names.toml").read_text(encoding="utf-8"))
