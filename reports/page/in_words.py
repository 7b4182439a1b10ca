"""The headline in words: which numbers stand out from their null and which do not, by the rule printed beside them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from interp.findings import ALPHA, Scalar
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
    return sum(s.stands_out for s in headline), sum(s.standing() != "unjudged" for s in headline)


def _standing(headline: Sequence[tuple[str, Scalar]]) -> tuple[Noted, ...]:
    return tuple(
        Noted(with_unit(short(s.value), s.unit), _null(s), _clause(name, s))
        for name, s in headline if s.stands_out
    )  # fmt: skip


def _sentences(headline: Sequence[tuple[str, Scalar]]) -> tuple[str, ...]:
    grouped: dict[str, list[str]] = {"out": [], "within": [], "unjudged": []}
    for name, s in headline:
        grouped["out" if s.stands_out else s.standing()].append(_phrase(name, s))
    openings = {"out": "Stands out", "within": "Does not stand out", "unjudged": "Not judged"}
    return tuple(f"{openings[kind]}: {'; '.join(said)}." for kind, said in grouped.items() if said)


def _null(s: Scalar) -> str:
    assert s.null is not None
    return short(near_zero_as_zero(s.null.value))


def _phrase(name: str, s: Scalar) -> str:
    """A number with its interval and its null: `share of ..., 0.33 (95 % 0.32 to 0.33), above its null of 0.14`."""
    interval = f" (95 % {short(s.interval[0])} to {short(s.interval[1])})" if s.interval else " (no interval)"
    judged = s.standing()
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
