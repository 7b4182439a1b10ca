"""The findings of a certificate: a number and a verdict for every headline of the probe, and the counts behind them."""

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any

from interp.certificates.simulate import SIZES, Cells
from interp.certificates.simulations import Held, Trials
from interp.certificates.verdicts import LEAST_JUDGED, MEANINGS, NONE, Count, Word, judge, suspects, total
from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.statistics.intervals import count_band
from interp.table import LABEL, Table

_PLANTED = tuple(f"power_{size}" for size in SIZES[1:])

Counts = dict[str, Count]
"""The counts of a number: significant without an effect (`null`, of those tested; `made` counts all) and with one, by
its size (`power_1` to `power_3`); intervals that contain the truth (`covered`, `covered_planted`)."""


def counts_of(kinds: Collection[str], cells: Cells, number: str) -> Counts:
    """The counts over these kinds of simulations together."""
    seen = {
        size: [one[number] for kind in kinds for one in cells.get((kind, size), ()) if number in one] for size in SIZES
    }
    called = [Count.of(one.called for one in seen[size]) for size in SIZES]
    planted = Count.of(one.holds for size in SIZES[1:] for one in seen[size])
    return {
        "made": Count(0, len(seen[0])), **dict(zip(("null", *_PLANTED), called, strict=True)),
        "covered": Count.of(one.holds for one in seen[0]), "covered_planted": planted,
    }  # fmt: skip


def _cells(counts: Counts) -> dict[str, float | int]:
    """The cells of a table; a rate over too few simulations is NaN."""
    null, covered, planted = counts["null"], counts["covered"], counts["covered_planted"]
    return {
        "called": null.rate, "n_judged": null.n, "n_null": counts["made"].n, "covered": covered.share,
        "n_covered": covered.n, "covered_planted": planted.share, "n_covered_planted": planted.n,
        **{name: counts[name].share for name in _PLANTED}, "n_planted": counts["power_3"].n,
    }  # fmt: skip


def counted(trials: Trials, cells: Cells) -> dict[str, dict[str, Counts]]:
    """The counts of each number, by kind of simulations with a null for it."""
    numbers = dict.fromkeys(number for cell in cells.values() for one in cell for number in one)
    kinds = [kind.name for kind in trials.simulations]
    found = {number: {kind: counts_of([kind], cells, number) for kind in kinds} for number in numbers}
    return {number: {kind: c for kind, c in mine.items() if c["made"].n} for number, mine in found.items()}


METHOD = "exact binomial over simulations"

_COUNTS = {
    "called": "fraction", "n_judged": "simulations", "n_null": "simulations", "covered": "fraction",
    "n_covered": "simulations", "covered_planted": "fraction", "n_covered_planted": "simulations",
    **dict.fromkeys(_PLANTED, "fraction"), "n_planted": "simulations",
}  # fmt: skip
HEADLINES_UNITS = {
    "number": LABEL, "word": LABEL, "worst_world": LABEL, "worst": "fraction", "n_worst": "simulations", **_COUNTS,
    "why": LABEL,
}  # fmt: skip
SIMULATIONS_UNITS = {"number": LABEL, "world": LABEL, **_COUNTS, "n": LABEL, "effects": LABEL}
KNOWN_UNITS = dict.fromkeys(("model", "number", "expected", "found", "agrees", "value", "why"), LABEL)


def doubtful(trials: Trials, seen: Cells) -> set[str]:
    """The names of the kinds of simulations in which some number looks liberal."""
    return {kind for kinds in counted(trials, seen).values() for names in suspects(_null(kinds)) for kind in names}


def findings_of(
    name: str, trials: Trials, seen: Cells, again: Cells, example: Findings, known: Sequence[Held]
) -> Findings:
    """The findings of the study; `again` are fresh simulations where a number looked liberal, `example` is one's."""
    kinds, tried_again = counted(trials, seen), counted(trials, again)
    variants = {f"{number}_no_first" for number in kinds}
    rows, scalars = [], {}
    for number, mine in kinds.items():
        every = counts_of(mine, seen, number)
        null = _null(mine)
        doubted = set().union(*suspects(null))  # the kinds in which this number looked liberal
        fresh = {kind: count for kind, count in _null(tried_again.get(number, {})).items() if kind in doubted}
        word = judge(null, every["power_3"], fresh)
        rows.append(_row(number, word, mine, every, total(fresh.values())))
        scalars[number] = _scalar(number, word, every["null"])
    words = [row["word"] for row in rows]
    others = [number for number in example.headline if number not in kinds and number not in variants]
    rows += [_row_without_simulations(number, example[number]) for number in others]
    tables = {
        "headlines": Table.from_rows(
            rows, HEADLINES_UNITS, "A row for each headline, in shares of judged simulations."
        ),
        "worlds": _simulations_table(trials, kinds),
    }
    if known:
        tables["known"] = _known_table(known)
    return Findings(name, scalars, tables, notes=tuple(_notes(words, known)), headline=tuple(kinds))


def _null(kinds: Mapping[str, Counts]) -> dict[str, Count]:
    return {kind: counts["null"] for kind, counts in kinds.items()}


def _scalar(number: str, word: Word, null: Count) -> Scalar:
    meaning = f"share of simulations without an effect in which {number} is significant, where it can be tested: {word}"
    about = {"n": null.n, "n_unit": "simulation", "meaning": meaning}
    if null.n < LEAST_JUDGED:
        return Scalar.undefined(f"testable in {null.n} simulations; {LEAST_JUDGED} would do", unit="fraction", **about)
    low, high = (count / null.n for count in count_band(null.n, ALPHA))
    return Scalar.of(
        null.share, "fraction", Interval(*null.interval(), METHOD), Null("a p that is right", ALPHA, (low, high)),
        **about,
    )  # fmt: skip


def _row(number: str, word: Word, kinds: Mapping[str, Counts], every: Counts, fresh: Count = NONE) -> dict[str, Any]:
    tested = {kind: count for kind, count in _null(kinds).items() if count.n >= LEAST_JUDGED}
    worst = max(tested, key=lambda kind: tested[kind].share, default="")
    most = tested.get(worst, NONE)
    why = MEANINGS[word] + ("" if every["power_3"].n else "; no effect on it is planted where it can be tested")
    for held, where in ((every["covered"], "without an effect"), (every["covered_planted"], "with one")):
        if held.n and held.interval()[1] < 1 - ALPHA:
            why += f"; its intervals are too narrow, or its value is biased, in simulations {where}"
    if fresh.n:
        why += f"; it looked liberal, and was significant in {fresh.k} of {fresh.n} fresh simulations"
    row = {"number": number, "word": word, "worst_world": worst, "worst": most.share, "n_worst": most.n}
    return row | _cells(every) | {"why": why}


def _row_without_simulations(number: str, scalar: Scalar) -> dict[str, Any]:
    """The row of a headline without simulations; without a p nothing can be significant."""
    row = _row(number, "not tested", {}, counts_of((), {}, number))
    if scalar.p is not None or not isfinite(scalar.value):
        return row
    return row | {"word": "no p", "why": MEANINGS["no p"] if scalar.null else f"it has no null: {scalar.null_reason}"}


def _simulations_table(trials: Trials, kinds: Mapping[str, Mapping[str, Counts]]) -> Table:
    made = {kind.name: kind for kind in trials.simulations}
    rows = [
        {
            "number": number, "world": name, **_cells(counts), "n": made[name].n,
            "effects": "; ".join(made[name].effects) if counts["power_3"].n else "",
        }
        for number, mine in kinds.items() for name, counts in mine.items()
    ]  # fmt: skip
    return Table.from_rows(rows, SIMULATIONS_UNITS, "The same for every kind of simulation.")


def _known_table(known: Sequence[Held]) -> Table:
    rows = [
        {
            "model": ", ".join(filter(None, (held.known.model, held.known.on))), "number": held.number,
            "expected": " or ".join(held.known.standing), "found": held.standing, "agrees": held.agrees,
            "value": held.words, "why": held.known.why,
        }
        for held in known
    ]  # fmt: skip
    return Table.from_rows(rows, KNOWN_UNITS, "Models of which it is known where a number stands to its null.")


def _notes(words: Sequence[Word], known: Sequence[Held]) -> list[str]:
    notes = [
        "Significant: as on a run's page, so that its essential controls agree. Rates are shares of the simulations "
        f"in which the number can be tested (enough clusters, a finite value), if these are {LEAST_JUDGED} or more. "
        "Verdicts use exact binomial intervals.",
        "Interval covers: the 95 % interval contains the true value, known by construction or from 100 times as many "
        "prompts.",
    ]
    notes += [f"{word}: {MEANINGS[word]}." for word in dict.fromkeys(words)]
    said = {"no": "Differs from the known truth", "not judged": "Could not be tested where the truth is known"}
    for agrees, what in said.items():
        where = [f"{held.number} on {held.known.model}" for held in known if held.agrees == agrees]
        notes += [f"{what}: {', '.join(where)}."] if where else []
    return notes
