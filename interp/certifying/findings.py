"""What a certificate says: a number and a word for every headline of the probe, and the counts behind them."""

from collections.abc import Sequence
from math import isfinite

from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.statistics.estimate import count_band
from interp.table import LABEL, Table

from .known import Held
from .trying import SIZES, Seen, Tried, covered, place_of
from .verdicts import MEANINGS, Count, Word, judge, suspects, total
from .worlds import Trials

METHOD = "exact binomial over worlds"

HEADLINES_UNITS = {
    "number": LABEL, "word": LABEL, "called": "fraction", "n_null": "worlds", "worst_world": LABEL, "worst": "fraction",
    "covered": "fraction", "n_covered": "worlds", "power_1": "fraction", "power_2": "fraction", "power_3": "fraction",
    "n_planted": "worlds", "why": LABEL,
}  # fmt: skip
WORLDS_UNITS = {
    "number": LABEL, "world": LABEL, "called": "fraction", "n_null": "worlds", "covered": "fraction",
    "n_covered": "worlds", "power_1": "fraction", "power_2": "fraction", "power_3": "fraction", "n_planted": "worlds",
    "n": LABEL, "effects": LABEL,
}  # fmt: skip
KNOWN_UNITS = {
    "model": LABEL, "number": LABEL, "expected": LABEL, "found": LABEL, "agrees": LABEL, "value": LABEL, "why": LABEL,
}  # fmt: skip


class _Kind:
    """The worlds of one kind, as far as they show one number."""

    def __init__(self, trials: Trials, tried: Tried, i: int, number: str) -> None:
        self.world = trials.worlds[i]
        self.seen = {size: self._of(tried, size, number) for size in SIZES}
        self.null = _called(self.seen[0])
        self.power = [_called(self.seen[size]) for size in SIZES[1:]]
        places = [place_of(k, len(self.seen[0])) for k in range(len(self.seen[0]))]
        held = covered(self.seen[0], places) if self.world.is_covered else []
        self.covered = Count(sum(held), len(held))

    def _of(self, tried: Tried, size: int, number: str) -> list[Seen]:
        return [one[number] for one in tried.seen.get((self.world.name, size), ()) if number in one]


def doubtful(trials: Trials, tried: Tried) -> set[str]:
    """The kinds of worlds, by name, in which some number looks liberal."""
    found = set()
    for number in _judged(tried):
        kinds = _kinds_of(trials, tried, number)
        found |= {kinds[i].world.name for i in suspects([kind.null for kind in kinds])}
    return found


def findings_of(
    name: str, trials: Trials, tried: Tried, again: Tried, example: Findings, known: Sequence[Held]
) -> Findings:
    """The findings of the study.

    `again` are the fresh worlds of kinds in which a number looked liberal, `example` what the probe found in one world.
    """
    judged = _judged(tried)
    twins = {f"{number}_no_first" for number in judged}
    untried = [number for number in example.headline if number not in judged and number not in twins]
    kinds = {number: _kinds_of(trials, tried, number) for number in judged}
    fresh = {number: _fresh(mine, again, number) for number, mine in kinds.items()}
    words = {
        number: judge([k.null for k in mine], total([k.power[-1] for k in mine]), fresh[number])
        for number, mine in kinds.items()
    }
    rows = [_row(number, words[number], mine, fresh[number]) for number, mine in kinds.items()]
    rows += [_untried_row(number, example[number]) for number in untried]
    tables = {
        "headlines": Table.from_rows(rows, HEADLINES_UNITS, "One row a headline number, in shares of worlds."),
        "worlds": _worlds_table(kinds),
    }
    if known:
        tables["known"] = _known_table(known)
    return Findings(
        name,
        {number: _scalar(number, words[number], mine) for number, mine in kinds.items()},
        tables,
        notes=tuple(_notes(list(words.values()), known)),
        headline=tuple(kinds),
    )


def _judged(tried: Tried) -> list[str]:
    return list(dict.fromkeys(number for cell in tried.seen.values() for one in cell for number in one))


def _fresh(kinds: Sequence[_Kind], again: Tried, number: str) -> Count | None:
    """The fresh worlds of the kinds in which a number looked liberal; None where it did not."""
    where = [kinds[i].world.name for i in suspects([kind.null for kind in kinds])]
    seen = [one[number] for name in where for one in again.seen.get((name, 0), ())]
    return _called(seen) if seen else None


def _kinds_of(trials: Trials, tried: Tried, number: str) -> list[_Kind]:
    every = [_Kind(trials, tried, i, number) for i in range(len(trials.worlds))]
    return [kind for kind in every if kind.null.n]


def _called(seen: Sequence[Seen]) -> Count:
    return Count(sum(s.called for s in seen), len(seen))


def _scalar(number: str, word: Word, kinds: Sequence[_Kind]) -> Scalar:
    null = total([kind.null for kind in kinds])
    low, high = (count / null.n for count in count_band(null.n, ALPHA))
    return Scalar.of(
        null.share, "fraction", Interval(*null.interval(), METHOD), Null("a p that is right", ALPHA, (low, high)),
        n=null.n, n_unit="world", meaning=f"share of worlds without an effect in which {number} is called: {word}",
    )  # fmt: skip


def _row(number: str, word: Word, kinds: Sequence[_Kind], fresh: Count | None) -> dict[str, object]:
    null, held = total([kind.null for kind in kinds]), total([kind.covered for kind in kinds])
    power = [total([kind.power[i] for kind in kinds]) for i in range(len(SIZES) - 1)]
    worst = max(kinds, key=lambda kind: kind.null.share)
    row: dict[str, object] = {"number": number, "word": word, "called": null.share, "n_null": null.n}
    row |= {"worst_world": worst.world.name, "worst": worst.null.share}
    row |= {"covered": held.share, "n_covered": held.n}
    for i, count in enumerate(power):
        row[f"power_{i + 1}"] = count.share
    why = MEANINGS[word] + ("" if power[-1].n else "; no effect on it is planted")
    if held.n and held.interval()[1] < 1 - ALPHA:
        why += "; its intervals are too narrow"
    if fresh is not None:
        why += f"; it looked liberal, and of fresh worlds {fresh.k} of {fresh.n} called it"
    return row | {"n_planted": power[-1].n, "why": why}


def _untried_row(number: str, scalar: Scalar) -> dict[str, object]:
    nothing = Count(0, 0)
    word: Word = "no p" if scalar.p is None and isfinite(scalar.value) else "untried"
    row: dict[str, object] = {"number": number, "word": word, "called": nothing.share, "n_null": 0}
    row |= {"worst_world": "", "worst": nothing.share, "covered": nothing.share, "n_covered": 0}
    for i in range(1, len(SIZES)):
        row[f"power_{i}"] = nothing.share
    why = MEANINGS[word] if scalar.null else f"it has no null: {scalar.null_reason}"
    return row | {"n_planted": 0, "why": why}


def _worlds_table(kinds: dict[str, list[_Kind]]) -> Table:
    rows = []
    for number, mine in kinds.items():
        for kind in mine:
            row: dict[str, object] = {"number": number, "world": kind.world.name, "called": kind.null.share}
            row |= {"n_null": kind.null.n, "covered": kind.covered.share, "n_covered": kind.covered.n}
            for i, count in enumerate(kind.power):
                row[f"power_{i + 1}"] = count.share
            effects = "; ".join(kind.world.effects) if kind.power[-1].n else ""
            rows.append(row | {"n_planted": kind.power[-1].n, "n": kind.world.n, "effects": effects})
    return Table.from_rows(rows, WORLDS_UNITS, "The same for every kind of world.")


def _known_table(known: Sequence[Held]) -> Table:
    rows = [
        {
            "model": held.known.model, "number": held.number, "expected": " or ".join(held.known.standing),
            "found": held.standing, "agrees": "yes" if held.agrees else "no", "value": held.words,
            "why": held.known.why,
        }
        for held in known
    ]  # fmt: skip
    return Table.from_rows(rows, KNOWN_UNITS, "Models of which it is known where a number stands to its null.")


def _notes(words: Sequence[Word], known: Sequence[Held]) -> list[str]:
    notes = [
        "Called: the page of a run would say that the number stands out, its essential controls agreeing. Null worlds "
        "are of all kinds together; a word stands on exact binomial intervals, never on the share alone.",
    ]
    notes += [f"{word}: {MEANINGS[word]}." for word in dict.fromkeys(words)]
    wrong = [f"{held.number} on {held.known.model}" for held in known if not held.agrees]
    return notes + ([f"Found elsewhere than is known: {', '.join(wrong)}."] if wrong else [])
