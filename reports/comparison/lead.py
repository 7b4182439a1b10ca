"""What the answer of a comparison says: what differs, and what does not, first on the same prompts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interp.findings import Scalar
from interp.formatting import short, with_unit
from interp.records.labels import NO_FIRST, label, with_first
from interp.table import Table

from ..page import about
from ..page.sections import KEY, said_and_shown
from .runs import Compared

JUDGED = ("moved", "within")
_HIGHER, _LOWER, _DEPENDS, _CHANCE, _LOST, _ALIKE, _VAGUE = range(7)
_BEGUN = (
    "- Higher", "- Lower", "- Depends on a control", "- Different, but chance alone can give one or both values",
    "- Not significant after correction", "- No difference found",
    "- Too uncertain to compare (the difference could be as large as the value it is compared with)",
)  # fmt: skip
_N_NAMED = (3, 3, 2, 1, 0, 2, 0)
"""How many numbers the line of each names at most."""
_Row = Mapping[Any, Any]
_Line = tuple[int, tuple[str, ...], str]
"""Which of `_BEGUN`, the groups, and what they are compared with."""


def in_words(
    compared: Compared, found: Mapping[str, Table], groups: list[str], moved: Scalar, corrected_too: set[Any]
) -> str:
    """`2 of 9 tested numbers of b differ from those of a after correction. Without …`, then `- Higher (2): …`.

    A line for each way to differ or not; what several groups have alike shares one. `moved` counts what differs in
    `groups`, of which `corrected_too` do after correction; further groups read other prompts.
    """
    apart = [group for group, against in compared.against.items() if against and group not in groups]
    references = about.listed([*dict.fromkeys(str(compared.against[group]) for group in groups)])
    told = _told(compared, found, groups, corrected_too) if moved.standing() == "above" else {}
    n_of: Counter[int] = Counter()
    for (kind, mine, _), numbers in told.items():
        n_of[kind] += len(mine) * len(numbers)
    on_same = "" if about.on_other_prompts(found).intersection(groups) else "On the same prompts, "
    tested = f"{on_same}{len(corrected_too)} of {moved.n} tested numbers of {about.listed(groups)}"
    lines = [f"{tested} differ from those of {references} after correction.{_counted(n_of)}"]
    pairs = {(mine, against) for _, mine, against in told}
    if len(pairs) == 1:
        lines[0] += f" Below, the first value is that of {about.listed(groups)}."
    for (kind, mine, against), numbers in sorted(told.items()):
        listed = [number for number in numbers if number][: _N_NAMED[kind]]
        left = len(numbers) - len(listed)
        more = [f"{f'and {left} more, ' * bool(listed)}in the figure"] * bool(left)
        who = f", {about.listed([*mine])} against {against}" if len(pairs) > 1 else ""
        lines.append(f"{_BEGUN[kind]} ({len(numbers)}){who}: {'; '.join([*listed, *more])}.")
    if apart:
        lines.append(f"- Not compared: {about.listed(apart)}. Other prompts can make a difference by themselves.")
    return "\n".join(lines)


def _counted(n_of: Mapping[int, int]) -> str:
    """` Without reservation: 3 higher. With a reservation: 2, as a control changes them (2).`"""
    plain = [f"{n_of[kind]} {word}" for kind, word in ((_HIGHER, "higher"), (_LOWER, "lower")) if n_of[kind]]
    reasons = {_DEPENDS: "a control changes them", _CHANCE: "chance alone can give such values"}
    other = [f"{why} ({n_of[kind]})" for kind, why in reasons.items() if n_of[kind]]
    said = f" Without reservation: {about.listed(plain)}." * bool(plain)
    return said + f" With a reservation: {n_of[_DEPENDS] + n_of[_CHANCE]}, as {' or '.join(other)}." * bool(other)


def comparable(compared: Compared, found: Mapping[str, Table]) -> list[str]:
    """The groups with tested differences that read the prompts of their reference; where there are none, all."""
    apart = about.on_other_prompts(found)
    tested = {row["group"] for row in found["differences"].rows() if row["verdict"] in JUDGED}
    every = [group for group, against in compared.against.items() if against]
    return [group for group in every if group in tested - apart] or every


def _told(
    compared: Compared, tables: Mapping[str, Table], groups: Iterable[str], corrected_too: set[Any]
) -> dict[_Line, list[str]]:
    """The numbers of each line with their values, those that answer questions first; empty are those only counted.

    Named is of numbers that differ in what they leave out the first; of what does not differ, what answers a question.
    """
    answered = [*tables["answers"].rows()]
    rows = {KEY(row): row for row in tables["differences"].rows()}
    asked = [*dict.fromkeys(tables["answers"]["question"])]
    _, shown = said_and_shown(answered, rows.values())
    answering = [(r["probe"], r["name"]) for r in sorted(answered, key=lambda row: asked.index(row["question"]))]
    others = [(row["probe"], row["name"]) for row in rows.values() if row["is_headline"]]
    found: dict[_Line, list[str]] = {}
    first: dict[tuple[str, ...], str] = {}
    for key in dict.fromkeys([*answering, *others]):
        alike: dict[tuple[int, str, str, bool], list[_Row]] = {}
        for row in (rows[*key, group] for group in groups if (*key, group) in rows):
            reference = rows.get((*key, row["against"]))
            if reference is None or row["verdict"] not in JUDGED or not row["is_headline"]:
                continue
            but = _objections(compared, row, rows)
            is_first = first.setdefault((row["group"], key[0], with_first(key[1])), key[1]) == key[1]
            kind = _kind(row, reference, corrected_too, shown, but)
            is_named = is_first and (kind < _ALIKE or key in answering)
            alike.setdefault((kind, row["against"], but, is_named), []).append(row)
        for (kind, against, but, is_named), mine in alike.items():
            line = kind, tuple(row["group"] for row in mine), against
            found.setdefault(line, []).append(_entry(kind, mine, rows[*key, against], but, shown) if is_named else "")
    return found


def _kind(row: _Row, reference: _Row, corrected_too: set[Any], shown: set[Any], but: str) -> int:
    """Which of `_BEGUN` a tested number is.

    Where one of the two alone is beyond its null, it has to be further from it than the other: a larger number that is
    within its null says nothing.
    """
    if row["verdict"] != "moved":
        widest = max(abs(row["difference_low"]), abs(row["difference_high"]))
        return _VAGUE if widest >= abs(reference["value"]) else _ALIKE
    if KEY(row) not in corrected_too:
        return _LOST
    here, there = KEY(row) in shown, KEY(reference) in shown
    further = abs(row["value"] - row["null"]) > abs(reference["value"] - reference["null"])
    if not (here or there) or (here != there and further != here):
        return _CHANCE
    return _DEPENDS if but else _HIGHER if row["difference"] > 0 else _LOWER


def _side(row: _Row | None) -> int | None:
    """1 or −1 as a number is higher or lower, 0 where no difference was found; None where it was not tested."""
    if row is None or row["verdict"] not in (*JUDGED, "same"):
        return None
    return 0 if row["verdict"] != "moved" else 1 if row["difference"] > 0 else -1


def _objections(compared: Compared, row: _Row, rows: Mapping[Any, _Row]) -> str:
    """`, but with the first position lower (1 against 2)`: controls whose difference points the other way, or is."""
    said = ""
    for name, words in compared.controls(row["probe"], row["name"]).items():
        mine, theirs = (rows.get((row["probe"], name, row[column])) for column in ("group", "against"))
        side = _side(mine)
        turns = mine is not None and (not _side(row) or mine["difference"] * row["difference"] < 0)
        if mine is not None and theirs is not None and side is not None and turns and side != _side(row):
            values = f"({short(mine['value'])} against {short(theirs['value'])})"
            said += f", but {words} {_how(mine, theirs) if side else 'no difference found'} {values}"
    return said


def _how(row: _Row, reference: _Row) -> str:
    """`higher`; of two numbers below 0 `less negative`."""
    if max(row["value"], reference["value"]) < 0:
        return "less negative" if row["difference"] > 0 else "more negative"
    return "higher" if row["difference"] > 0 else "lower"


def _entry(kind: int, rows: Sequence[_Row], reference: _Row, but: str, shown: set[Any]) -> str:
    """`share (3 against 1 bits)`: one number of one or several groups, then of their reference."""
    is_sign = kind in (_HIGHER, _LOWER) and max(reference["value"], *(row["value"] for row in rows)) < 0
    turned = f", {_how(rows[0], reference)}" * is_sign
    mine = about.listed([short(row["value"]) for row in rows])
    values = with_unit(f"{mine} against {short(reference['value'])}", reference["unit"]) + turned
    if kind == _CHANCE:
        chance = [(which, row) for which, row in (("first", rows[0]), ("second", reference)) if KEY(row) not in shown]
        bands = [f"{short(row['null_low'])} to {short(row['null_high'])} for the {which}" for which, row in chance]
        values += f"; by chance {about.listed(bands)}"
    if kind in (_ALIKE, _VAGUE) and len(rows) == 1:
        values += f"; difference {short(rows[0]['difference_low'])} to {short(rows[0]['difference_high'])}"
    name, meaning = reference["name"], reference["meaning"]
    if kind in (_HIGHER, _LOWER, _ALIKE, _VAGUE):
        return f"{label(reference['probe'], name, meaning)} ({values})"
    bare = label(reference["probe"], with_first(name), meaning)
    left_out = " without the first position" * (NO_FIRST in name)
    return f"{bare}: {_how(rows[0], reference)}{left_out} ({values}){but * (kind == _DEPENDS)}"
