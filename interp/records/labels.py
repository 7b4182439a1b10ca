"""Short labels of numbers: from `names.toml`, or the first clause of their meaning."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

NO_FIRST = "_no_first"
"""In the name of a number that leaves the first position out."""
_ENTROPY = "next-token entropy"
_SHORTEST = 5  # words of a clause that can stand alone


def label(probe: str, name: str, meaning: str) -> str:
    """`attention to the first position`; `..., without the first position` for variants that leave it out.

    Labels of `names.toml` are for the default target; a number of another one (`“column”`) has its meaning.
    """
    bare = with_first(name)
    known = _names().get(probe, {}).get(bare)
    if known is None or "“" in meaning or (meaning and _ENTROPY in known and _ENTROPY not in meaning):
        return clause(name, meaning)
    return known if bare == name else f"{known}, without the first position"


def label_with_unit(probe: str, name: str, meaning: str, unit: str) -> str:
    """`... (bits)`: a label with its unit, except for pure numbers and counts."""
    bare = unit in ("1", "", "label", "fraction", "dimensions", "directions")
    return label(probe, name, meaning) + ("" if bare else f" ({unit})")


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
def _names() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
