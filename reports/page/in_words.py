"""The headline in words: which numbers stand out from their null and which do not, by a rule printed beside them.

A number stands out where its 95 % interval (the value itself, where there is no interval) lies outside the 95 % band of
its null, and its p, where it has one, is at most 0.05. That says that it is not what the null gives, and no more.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from interp.findings import Scalar
from interp.record import RunRecord
from reports.formatting import near_zero_as_zero, short, with_unit

ALPHA = 0.05
"""The p up to which a number stands out."""

RULE = (
    "A number stands out where its 95 % interval (the value alone, where it has no interval) lies outside the 95 % "
    "band of its null and its p, if it has one, is at most 0.05. That it is not what the null gives does not make it "
    "large, nor its cause known."
)

Verdict = Literal["above", "below", "within", "unjudged"]

_SHORTEST = 5  # words of a clause that can stand alone


@dataclass(frozen=True)
class Standing:
    """A number that stands out, in brief: with its unit, beside its null's."""

    value: str
    null: str
    clause: str


@dataclass(frozen=True)
class Words:
    """What is said of one probe: in brief, and in a sentence each of what stands out, what does not, what is open."""

    probe: str
    count: str
    standing: tuple[Standing, ...]
    sentences: tuple[str, ...]


def verdict(s: Scalar) -> Verdict:
    """Where a number stands to its null; `unjudged` without one, where it is underpowered, or is no number."""
    if s.null is None or s.underpowered or not _finite(s.value, *s.null.band):
        return "unjudged"
    low, high = s.interval if s.interval and _finite(*s.interval) else (s.value, s.value)
    if s.p is not None and not s.p <= ALPHA:
        return "within"
    if low > s.null.band[1]:
        return "above"
    return "below" if high < s.null.band[0] else "within"


def summary(record: RunRecord) -> str:
    """How many headline numbers stand out, and how many would by chance; empty where none can be judged."""
    headline = [f.scalars[name] for f in record.findings.values() for name in f.headline]
    n_out, n_judged = _counts(headline)
    if not n_judged:
        return ""
    left_out = len(headline) - n_judged
    more = f" {left_out} more {_be(left_out)} not judged (no null, or underpowered)." if left_out else ""
    of = f"{n_judged} headline numbers that have" if n_judged != 1 else "1 headline number that has"
    return (
        f"Of {of} a null, {n_out} {_stand(n_out)} out from it; if none did, about {short(ALPHA * n_judged, 2)} "
        f"would by chance.{more}"
    )


def in_words(record: RunRecord) -> tuple[Words, ...]:
    """What every probe's headline says, in its order; a probe without headline numbers is left out."""
    found = []
    for probe, findings in record.findings.items():
        headline = [(name, findings.scalars[name]) for name in findings.headline]
        if headline:
            found.append(Words(probe, _count(headline), _standing(headline), _sentences(headline)))
    return tuple(found)


def _count(headline: Sequence[tuple[str, Scalar]]) -> str:
    n_out, n_judged = _counts([s for _, s in headline])
    return f"{n_out} of {n_judged} {_stand(n_out)} out" if n_judged else "none can be judged"


def _counts(headline: Sequence[Scalar]) -> tuple[int, int]:
    """How many stand out, and how many can be judged."""
    return sum(map(_stands_out, headline)), sum(verdict(s) != "unjudged" for s in headline)


def _stands_out(s: Scalar) -> bool:
    return verdict(s) in ("above", "below")


def _standing(headline: Sequence[tuple[str, Scalar]]) -> tuple[Standing, ...]:
    return tuple(
        Standing(with_unit(short(s.value), s.unit), _null(s), _clause(name, s))
        for name, s in headline if _stands_out(s)
    )  # fmt: skip


def _sentences(headline: Sequence[tuple[str, Scalar]]) -> tuple[str, ...]:
    grouped: dict[str, list[str]] = {"out": [], "within": [], "unjudged": []}
    for name, s in headline:
        grouped["out" if _stands_out(s) else verdict(s)].append(_phrase(name, s))
    openings = {"out": "Stands out", "within": "Does not stand out", "unjudged": "Not judged"}
    return tuple(f"{openings[kind]}: {'; '.join(said)}." for kind, said in grouped.items() if said)


def _null(s: Scalar) -> str:
    assert s.null is not None
    return short(near_zero_as_zero(s.null.value))


def _phrase(name: str, s: Scalar) -> str:
    """A number with its interval and its null: `share of ..., 0.33 (95 % 0.32 to 0.33), above its null of 0.14`."""
    interval = f" (95 % {short(s.interval[0])} to {short(s.interval[1])})" if s.interval else " (no interval)"
    judged = verdict(s)
    said = f"{_clause(name, s)}, {with_unit(short(s.value), s.unit)}{interval}"
    if judged == "unjudged":
        reason = "underpowered" if s.underpowered else s.null_reason or "no number"
        return f"{said}: {reason}"
    p = "" if s.p is None else f", p = {short(s.p, 2)}"
    if judged == "within":
        return f"{said}, against {_null(s)} in its null{p}"
    return f"{said}, {judged} the {_null(s)} of its null{p}"


def _clause(name: str, s: Scalar) -> str:
    """The first clause of a meaning that can stand alone, begun small unless it opens with a name or a symbol."""
    meaning = s.meaning or name.replace("_", " ")
    ends = [m.start() for m in re.finditer(r"[:;] |\.(?: |$)| \(", meaning)]
    end = next((e for e in ends if len(meaning[:e].split()) >= _SHORTEST), len(meaning.rstrip(".")))
    clause = meaning[:end]
    first = clause.split(" ", 1)[0]
    return clause if not re.fullmatch(r"[A-Z][a-z]*", first) else clause[0].lower() + clause[1:]


def _stand(n: int) -> str:
    return "stands" if n == 1 else "stand"


def _be(n: int) -> str:
    return "is" if n == 1 else "are"


def _finite(*numbers: float) -> bool:
    return all(math.isfinite(x) for x in numbers)
