"""What a number is called where there is room for a few words: `names.toml`, or the first clause of its meaning."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from interp.formatting import short

NO_FIRST = "_no_first"
"""In the name of a number that leaves the first position out."""
EVERYWHERE = "_all_positions"
"""How a number is called that is measured at every position."""
_ENTROPY = "next-token entropy"
_SHORTEST = 5  # words of a clause that can stand alone


def label(probe: str, name: str, meaning: str) -> str:
    """`attention to the first position`; `..., without the first position` of the variants that leave it out.

    The known names are those of the usual target: a number of another one (`“column”`) has its meaning.
    """
    bare = with_first(name)
    known = _names().get(probe, {}).get(bare)
    if known is None or "“" in meaning or (meaning and _ENTROPY in known and _ENTROPY not in meaning):
        return clause(name, meaning)
    return known if bare == name else f"{known}, without the first position"


def label_with_unit(probe: str, name: str, meaning: str, unit: str) -> str:
    """`... (bits)`: a label that stands alone; pure numbers have no unit, and counts name what they count."""
    bare = unit in ("1", "", "label", "fraction", "dimensions", "directions")
    return label(probe, name, meaning) + ("" if bare else f" ({unit})")


def in_both(probe: str, name: str, meaning: str, one: tuple[str, float], other: tuple[str, float]) -> str:
    """`attention to the first position is lower in a (0.0454) than in b (0.411)`, of two models and their values."""
    if (of := _of_verb(probe, name)) is not None:
        said = (f"{value_in_words(probe, name, value)} in {model}" for model, value in (one, other))
        return f"{of}{',' * (', ' in of)} {' and '.join(said)}"
    of = label(probe, name, meaning)
    (here, mine), (there, theirs) = one, other
    words = (f"{of} is lower", f"{of} is higher", "")
    lower, higher, scale = _names()["comparatives"].get(f"{probe}.{name}", words) if min(mine, theirs) < 0 else words
    than = f"than in {there} ({short(theirs)}){scale and f', where {scale}'}"
    return f"{lower if mine < theirs else higher} in {here} ({short(mine)}) {than}"


def in_row(probe: str, name: str, meaning: str, unit: str) -> str:
    """What a row of a comparison is called: what a verb says of it stands with its values."""
    return _of_verb(probe, name) or label_with_unit(probe, name, meaning, unit)


def value_in_words(probe: str, name: str, value: float) -> str:
    """`rises by 56.7 %` where a verb says the sign of a share, else the number."""
    verb = _verb(probe, name)
    return f"{verb[1 + (value < 0)]} by {short(100 * abs(value))} %" if verb else short(value)


def change_in_words(probe: str, name: str, difference: float, low: float, high: float) -> tuple[str, str]:
    """A difference of such values and its interval; of shares with a verb in percentage points, more of a rise."""
    if not _verb(probe, name):
        return short(difference), f"{short(low)} to {short(high)}"
    return f"{short(-100 * difference)} points", f"{short(-100 * high)} to {short(-100 * low)}"


def _of_verb(probe: str, name: str) -> str | None:
    verb = _verb(probe, name)
    if verb is None:
        return None
    everywhere = ", averaged over all positions" * name.endswith(EVERYWHERE)
    return f"{verb[0]}{', without the first position' * (NO_FIRST in name)}{everywhere}"


def _verb(probe: str, name: str) -> Sequence[str] | None:
    return _names()["verbs"].get(f"{probe}.{with_first(name).removesuffix(EVERYWHERE)}")


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
