"""What a number is called where there is room for a few words: `names.toml`, or the first clause of its meaning."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from interp.formatting import short

NO_FIRST = "_no_first"
"""In the name of a number that leaves the first position out."""
_SHORTEST = 5  # words of a clause that can stand alone


def label(probe: str, name: str, meaning: str) -> str:
    """`attention to the first position`; `..., without the first position` of the variants that leave it out."""
    bare = with_first(name)
    known = _names().get(probe, {}).get(bare)
    if known is None:
        return clause(name, meaning)
    return known if bare == name else f"{known}, without the first position"


def label_with_unit(probe: str, name: str, meaning: str, unit: str) -> str:
    """`... (bits)`: a label that stands alone; pure numbers have no unit, and counts name what they count."""
    bare = unit in ("1", "", "label", "fraction", "dimensions", "directions")
    return label(probe, name, meaning) + ("" if bare else f" ({unit})")


def in_both(probe: str, name: str, meaning: str, one: tuple[str, float], other: tuple[str, float]) -> str:
    """`attention to the first position is lower in a (0.0454) than in b (0.411)`, of two models and their values."""
    here, there = (f"{model} ({short(value)})" for model, value in (one, other))
    if (verb := _names()["verbs"].get(f"{probe}.{with_first(name)}")) is not None:
        of = verb[0] + ", without the first position," * (NO_FIRST in name)
        shares = (f"{verb_of(probe, name, x)} by {100 * abs(x):.0f} % in {model}" for model, x in (one, other))
        return f"{of} {' and '.join(shares)}"
    lower, higher = _names()["comparatives"].get(f"{probe}.{name}", ("",) * 2)
    of = f"{label(probe, name, meaning)} is"
    more = (lower or f"{of} lower") if one[1] < other[1] else (higher or f"{of} higher")
    return f"{more} in {here} than in {there}"


def verb_of(probe: str, name: str, value: float) -> str:
    """`rises` or `falls`, where a verb says the sign of a share; else empty."""
    verb = _names()["verbs"].get(f"{probe}.{with_first(name)}")
    return verb[1 + (value < 0)] if verb else ""


def with_first(name: str) -> str:
    """The name of the same number with the first position counted."""
    return name.replace(NO_FIRST, "")


def clause(name: str, meaning: str) -> str:
    """The first clause of a meaning that can stand alone; the name in words where there is no meaning."""
    meaning = meaning or name.replace(NO_FIRST, " without the first position").replace("_", " ")
    ends = [m.start() for m in re.finditer(r"[:;] |\.(?: |$)| \(", meaning)]
    end = next((e for e in ends if len(meaning[:e].split()) >= _SHORTEST), len(meaning.rstrip(".")))
    return meaning[:1].upper() + meaning[1:end] if re.match(r"[a-z]+[ ,]", meaning) else meaning[:end]


@cache
def _names() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
