"""The headline in words: which numbers stand out from their null and which do not, by the rule printed beside them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from interp.findings import Scalar
from interp.records.headlines import Headline, headlines, tried
from interp.records.record import RunRecord
from interp.words import near_zero_as_zero, short, with_unit

_SHORTEST = 5  # words of a clause that can stand alone


@dataclass(frozen=True)
class Noted:
    """A number that stands out, in brief: with its unit, beside its null's."""

    value: str
    null: str
    clause: str


@dataclass(frozen=True)
class Words:
    """What is said of one probe: in brief, and in a sentence each of what stands out, what does not, what is open."""

    probe: str
    count: str
    standing: tuple[Noted, ...]
    sentences: tuple[str, ...]


def summary(record: RunRecord) -> str:
    """How many headline numbers stand out, and out of how much; empty where none can be judged."""
    judged = headlines(record.findings)
    n_out, n_judged = _counts(judged)
    if not n_judged:
        return ""
    left_out = len(judged) - n_judged
    more = f" {left_out} more {_be(left_out)} not judged (no null, or underpowered)." if left_out else ""
    of = f"{n_judged} headline numbers that have" if n_judged != 1 else "1 headline number that has"
    return f"Of {of} a null, {n_out} {_stand(n_out)} out from it.{more} {tried(record.findings)}"


def in_words(record: RunRecord) -> tuple[Words, ...]:
    """What every probe's headline says, in its order; a probe without headline numbers is left out."""
    by_probe: dict[str, list[Headline]] = {}
    for headline in headlines(record.findings):
        by_probe.setdefault(headline.probe, []).append(headline)
    return tuple(Words(probe, _count(mine), _standing(mine), _sentences(mine)) for probe, mine in by_probe.items())


def _count(headline: Sequence[Headline]) -> str:
    n_out, n_judged = _counts(headline)
    return f"{n_out} of {n_judged} {_stand(n_out)} out" if n_judged else "none can be judged"


def _counts(headline: Sequence[Headline]) -> tuple[int, int]:
    """How many stand out, and how many can be judged."""
    return sum(h.stands_out for h in headline), sum(h.standing != "unjudged" for h in headline)


def _standing(headline: Sequence[Headline]) -> tuple[Noted, ...]:
    return tuple(
        Noted(with_unit(short(h.scalar.value), h.scalar.unit), _null(h.scalar), _clause(h.name, h.scalar))
        for h in headline if h.stands_out
    )  # fmt: skip


def _sentences(headline: Sequence[Headline]) -> tuple[str, ...]:
    grouped: dict[str, list[str]] = {"out": [], "within": [], "unjudged": []}
    for h in headline:
        grouped["out" if h.stands_out else h.standing].append(_phrase(h))
    openings = {"out": "Stands out", "within": "Does not stand out", "unjudged": "Not judged"}
    return tuple(f"{openings[kind]}: {'; '.join(said)}." for kind, said in grouped.items() if said)


def _null(s: Scalar) -> str:
    assert s.null is not None
    return short(near_zero_as_zero(s.null.value))


def _phrase(h: Headline) -> str:
    """A number with its interval and its null: `share of ..., 0.33 (95 % 0.32 to 0.33), above its null of 0.14`."""
    s = h.scalar
    interval = f" (95 % {short(s.interval[0])} to {short(s.interval[1])})" if s.interval else " (no interval)"
    said = f"{_clause(h.name, s)}, {with_unit(short(s.value), s.unit)}{interval}"
    alone = h.without_controls
    if alone == "unjudged":
        reason = "underpowered" if s.underpowered else s.null_reason or "no number"
        return f"{said}: {reason}"
    p = "" if h.p_together is None else f", p = {short(h.p_together, 2)}"
    if alone == "within":
        return f"{said}, against {_null(s)} in its null{p}"
    objected = "".join(f", which {objection}" for objection in h.objections)
    return f"{said}, {alone} the {_null(s)} of its null{p}{objected}"


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
