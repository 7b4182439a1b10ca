"""What the answer of a comparison says: what differs, and what does not, first on the same prompts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interp.findings import Scalar
from interp.formatting import short, with_unit
from interp.records.labels import label
from interp.table import Table

from ..page import about
from ..page.sections import KEY, said_and_shown
from .runs import Compared

JUDGED = ("moved", "within")
N_FINDINGS, N_NAMED = 5, 3
"""Findings, and numbers that each names, at most."""
_WHICH = " {0} of the differences of {2} {1} the questions below (the figure has all):"
_BEGUN = ("- Higher in {0}", "- Lower in {0}", "No difference found between {0} and {1}")
_SIDES = {1: "higher", -1: "lower", 0: "no difference found"}
_ALIKE = 2
_Row = Mapping[Any, Any]
_Finding = tuple[int, tuple[str, ...], str, bool]
"""Which of `_BEGUN`, the groups, what they are compared with, and whether a control says otherwise."""


def in_words(
    compared: Compared, found: Mapping[str, Table], groups: list[str], moved: Scalar, corrected_too: set[Any]
) -> str:
    """`3 of 9 numbers of b differ from those of a (by chance: about 0.45).`, then `- Higher in b: share (3 against 1).`

    A line a finding, of the numbers that answer questions; what differs alike shares one. `moved` counts what differs
    in `groups`, of which `corrected_too` do after correction; further groups read other prompts.
    """
    apart = [group for group, against in compared.against.items() if against and group not in groups]
    references = about.listed([*dict.fromkeys(str(compared.against[group]) for group in groups)])
    whose = f"Those of {about.listed(groups)} do, on the same prompts: " if apart else ""
    of = "" if apart else f" of {about.listed(groups)}"
    begun = f"{whose}{moved.value:.0f} of {moved.n} numbers{of} differ from those of {references}"
    by_chance = "" if moved.null is None else f"; by chance: about {short(moved.null.value)}"
    told = _findings(compared, found, groups, corrected_too) if moved.standing() == "above" else []
    n_told = sum(len(numbers) for of, numbers in told if of[0] != _ALIKE)
    which = _WHICH.format(n_told, "answers" if n_told == 1 else "answer", about.listed(groups)) if n_told else ""
    lines = [f"{begun} ({len(corrected_too)} after correction for their number{by_chance})."]
    if apart:
        why = "these runs read other prompts, so a difference can come from the prompts"
        lines.append(f"Whether {about.listed(apart)} differ{'s' * (len(apart) == 1)} from it cannot be told: {why}.")
    lines[-1] += which
    for (kind, mine, against, turns), numbers in told[:N_FINDINGS]:
        where = f"{_BEGUN[kind].format(about.listed([*mine]), against)}: "
        lines += [f"{each}." for each in (numbers[:N_NAMED] if turns else [where + "; ".join(numbers[:N_NAMED])])]
    return "\n".join(lines)


def comparable(compared: Compared, found: Mapping[str, Table]) -> list[str]:
    """The groups with tested differences that read the prompts of their reference; where there are none, all."""
    apart = about.on_other_prompts(found)
    tested = {row["group"] for row in found["differences"].rows() if row["verdict"] in JUDGED}
    every = [group for group, against in compared.against.items() if against]
    return [group for group in every if group in tested - apart] or every


def _findings(
    compared: Compared, tables: Mapping[str, Table], groups: Iterable[str], corrected_too: set[Any]
) -> list[tuple[_Finding, list[str]]]:
    """What these groups' numbers show: first what differs, no control says otherwise, and most of them share."""
    answered = tables["answers"]
    rows, asked = {KEY(row): row for row in tables["differences"].rows()}, [*dict.fromkeys(answered["question"])]
    _, shown = said_and_shown(answered.rows(), rows.values())
    answering = {KEY(row) for row in answered.rows()}
    found: dict[_Finding, dict[str, str]] = {}
    of_group: dict[tuple[str, ...], str] = {}  # the first of the numbers that differ in what they leave out
    for each in sorted(answered.rows(), key=lambda row: asked.index(row["question"])):
        key = each["probe"], each["name"]
        alike: dict[tuple[int, str, str], list[_Row]] = {}
        for row in (rows[*key, group] for group in groups if (*key, group) in rows):
            kind = _kind(row, rows.get((*key, row["against"])), shown)
            if of_group.setdefault((row["group"], key[0], key[1].replace("_no_first", "")), key[1]) != key[1]:
                continue
            if kind is not None and answering & {KEY(row), (*key, row["against"])}:
                alike.setdefault((kind, row["against"], _objections(compared, row, rows)), []).append(row)
        for (kind, against, but), mine in alike.items():
            reference = rows[*key, against]
            lost = ", not after correction" * (kind != _ALIKE and not {KEY(row) for row in mine} & corrected_too)
            told = _values(mine, reference, shown, but, lost)
            finding = found.setdefault((kind, tuple(row["group"] for row in mine), against, but != ""), {})
            finding[key[1]] = told

    def rank(of: _Finding) -> tuple[bool, bool, int]:
        return of[0] == _ALIKE, of[3], -len(found[of]) * len(of[1])

    return [(of, [*found[of].values()]) for of in sorted(found, key=rank)]


def _kind(row: _Row, reference: _Row | None, shown: set[Any]) -> int | None:
    """Which of `_BEGUN` a row is; None of what neither shows or was not tested.

    Where one of the two alone is beyond its null, it has to be further from it than the other: a larger number that is
    within its null says nothing.
    """
    if reference is None or row["verdict"] not in JUDGED:
        return None
    here, there = KEY(row) in shown, KEY(reference) in shown
    further = abs(row["value"] - row["null"]) > abs(reference["value"] - reference["null"])
    if not (here or there) or (here != there and row["verdict"] == "moved" and further != here):
        return None
    side = _side(row)
    return _ALIKE if not side else int(side < 0)


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
            said += f", but {words} {_SIDES[side]} ({short(mine['value'])} against {short(theirs['value'])})"
    return said


def _values(rows: Sequence[_Row], reference: _Row, shown: set[Any], but: str, lost: str) -> str:
    """`share (3 against 1 bits)`: one number of one or several groups, then of their reference."""
    mine = about.listed([_value(row, shown) for row in rows])
    name = label(reference["probe"], reference["name"], reference["meaning"])
    values = with_unit(f"{mine} against {_value(reference, shown)}".removesuffix(","), reference["unit"])
    if len(rows) == 1:
        values += f"; difference {short(rows[0]['difference_low'])} to {short(rows[0]['difference_high'])}"
    values += lost
    if not but:
        return f"{name} ({values})"
    side = _SIDES[_side(rows[0]) or 0]
    return f"- {name[0].upper()}{name[1:]}: {side} in {about.listed([row['group'] for row in rows])} ({values}){but}"


def _value(row: _Row, shown: set[Any]) -> str:
    return short(row["value"]) + ("" if KEY(row) in shown else ", within chance,")
