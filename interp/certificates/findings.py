"""What a certificate says: a number and a word for every headline of the probe, and the counts behind them."""

from collections.abc import Mapping, Sequence
from math import isfinite

from interp.certificates.simulate import SIZES, Cells
from interp.certificates.simulations import Held, Simulation, Trials
from interp.certificates.verdicts import LEAST_JUDGED, MEANINGS, NONE, Count, Word, judge, suspects, total
from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.statistics.intervals import count_band
from interp.table import LABEL, Table

_PLANTED = tuple(f"power_{size}" for size in SIZES[1:])

Counts = dict[str, Count]
"""In how many simulations a number is called: `null` without an effect, of those in which it is judged (`made` are
all), `power_1` to `power_3` by size of the effect; and in how many its interval holds the truth (`covered`,
`covered_planted`)."""


def counts_of(kind: str, cells: Cells, number: str) -> Counts:
    """Those of one kind of simulation, by its name."""
    seen = {size: [one[number] for one in cells.get((kind, size), ()) if number in one] for size in SIZES}
    called = [Count.of(one.called for one in seen[size]) for size in SIZES]
    planted = Count.of(one.holds for size in SIZES[1:] for one in seen[size])
    return {
        "made": Count(0, len(seen[0])), **dict(zip(("null", *_PLANTED), called, strict=True)),
        "covered": Count.of(one.holds for one in seen[0]), "covered_planted": planted,
    }  # fmt: skip


def _cells(counts: Counts) -> dict[str, float | int]:
    """As cells of a table: a rate that too few simulations would say is empty."""
    shares: dict[str, float | int] = {"called": counts["null"].rate, "n_judged": counts["null"].n}
    shares["n_null"] = counts["made"].n
    for name in ("covered", "covered_planted"):
        shares |= {name: counts[name].share, f"n_{name}": counts[name].n}
    return shares | {name: counts[name].share for name in _PLANTED} | {"n_planted": counts["power_3"].n}


Kinds = dict[str, Counts]
"""The counts of one number by kind of simulation."""


def counted(simulations: Sequence[Simulation], cells: Cells) -> dict[str, Kinds]:
    """By number: the kinds of simulations in which it has nothing to find."""
    numbers = dict.fromkeys(number for cell in cells.values() for one in cell for number in one)
    found = {number: {kind.name: counts_of(kind.name, cells, number) for kind in simulations} for number in numbers}
    return {number: {name: c for name, c in kinds.items() if c["made"].n} for number, kinds in found.items()}


def together(kinds: Kinds) -> Counts:
    """All kinds of simulations as one."""
    names = ("made", "null", *_PLANTED, "covered", "covered_planted")
    return {name: total(counts[name] for counts in kinds.values()) for name in names}


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
    """The kinds of simulations, by name, in which some number looks liberal."""
    return {kind for kinds in counted(trials.simulations, seen).values() for kind in _suspected(kinds)}


def findings_of(
    name: str, trials: Trials, seen: Cells, again: Cells, example: Findings, known: Sequence[Held]
) -> Findings:
    """The findings of the study.

    `again` are the fresh simulations of kinds in which a number looked liberal, `example` what the probe found in one.
    """
    kinds = counted(trials.simulations, seen)
    twins = {f"{number}_no_first" for number in kinds}
    others = [number for number in example.headline if number not in kinds and number not in twins]
    fresh = {number: _fresh(mine, again, number) for number, mine in kinds.items()}
    words = {
        number: judge([counts["null"] for counts in mine.values()], together(mine)["power_3"], fresh[number])
        for number, mine in kinds.items()
    }
    rows = [_row(number, words[number], mine, fresh[number]) for number, mine in kinds.items()]
    rows += [_row_without_simulations(number, example[number]) for number in others]
    tables = {
        "headlines": Table.from_rows(
            rows, HEADLINES_UNITS, "A row for each headline, in shares of judged simulations."
        ),
        "worlds": _simulations_table(trials, kinds),
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


def _suspected(kinds: Kinds) -> list[str]:
    return suspects({kind: counts["null"] for kind, counts in kinds.items()})


def _fresh(kinds: Kinds, again: Cells, number: str) -> Count | None:
    """The fresh simulations of the kinds in which a number looked liberal; None where it did not."""
    fresh = total(counts_of(kind, again, number)["null"] for kind in _suspected(kinds))
    return fresh if fresh.n else None


def _scalar(number: str, word: Word, kinds: Kinds) -> Scalar:
    null = together(kinds)["null"]
    meaning = f"share of simulations without an effect in which {number} is called, of those that judge it: {word}"
    about = {"n": null.n, "n_unit": "simulation", "meaning": meaning}
    if null.n < LEAST_JUDGED:
        return Scalar.undefined(f"judged in {null.n} simulations; {LEAST_JUDGED} would do", unit="fraction", **about)
    low, high = (count / null.n for count in count_band(null.n, ALPHA))
    return Scalar.of(
        null.share, "fraction", Interval(*null.interval(), METHOD), Null("a p that is right", ALPHA, (low, high)),
        **about,
    )  # fmt: skip


def _row(number: str, word: Word, kinds: Kinds, fresh: Count | None) -> dict[str, object]:
    every = together(kinds)
    nulls = {kind: counts["null"] for kind, counts in kinds.items()}
    tested = {kind: null for kind, null in nulls.items() if null.n >= LEAST_JUDGED}
    worst = max(tested, key=lambda kind: tested[kind].share, default="")
    most = tested.get(worst, NONE)
    why = MEANINGS[word] + ("" if every["power_3"].n else "; no effect on it is planted where it is judged")
    for held, where in ((every["covered"], "without an effect"), (every["covered_planted"], "with one")):
        if held.n and held.interval()[1] < 1 - ALPHA:
            why += f"; its intervals are too narrow, or its value is biased, in simulations {where}"
    if fresh is not None:
        why += f"; it looked liberal, and of fresh simulations {fresh.k} of {fresh.n} called it"
    row: dict[str, object] = {
        "number": number,
        "word": word,
        "worst_world": worst,
        "worst": most.share,
        "n_worst": most.n,
    }
    return row | _cells(every) | {"why": why}


def _row_without_simulations(number: str, scalar: Scalar) -> dict[str, object]:
    """A headline of which no simulation is known to hold nothing: without a p there is nothing to be called."""
    row = _row(number, "not tested", {}, None)
    if scalar.p is not None or not isfinite(scalar.value):
        return row
    return row | {"word": "no p", "why": MEANINGS["no p"] if scalar.null else f"it has no null: {scalar.null_reason}"}


def _simulations_table(trials: Trials, kinds: Mapping[str, Kinds]) -> Table:
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
        "Called: the page of a run would say that the number stands out, its essential controls agreeing. Shares are "
        f"of the simulations in which it is judged (enough clusters, a finite value); under {LEAST_JUDGED} no rate is "
        "said. A word stands on exact binomial intervals, never on the share alone.",
        "Covers: the interval holds the value that is true by how the simulation is made, or that a hundred times the "
        "prompts give.",
    ]
    notes += [f"{word}: {MEANINGS[word]}." for word in dict.fromkeys(words)]
    said = {"no": "Found elsewhere than is known", "not judged": "Not judged where the truth is known"}
    for agrees, what in said.items():
        where = [f"{held.number} on {held.known.model}" for held in known if held.agrees == agrees]
        notes += [f"{what}: {', '.join(where)}."] if where else []
    return notes
