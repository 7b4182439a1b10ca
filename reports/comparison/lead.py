"""What the answer of a comparison says: what differs, and what does not, first on the same prompts."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from interp.formatting import short, with_unit
from interp.records.labels import label
from interp.table import Table

from ..page import about
from ..page.sections import KEY, said_and_shown
from .runs import Compared

JUDGED = ("moved", "within")
N_FINDINGS, N_NAMED = 3, 2
"""Findings, and numbers that each names, at most; one of each on the same and on other prompts, where these differ."""
_BEGUN = ("higher in {0} than in {1}", "lower in {0} than in {1}", "no difference found between {0} and {1}")
_ALIKE = 2
_Row = Mapping[Any, Any]
_Finding = tuple[int, tuple[str, ...], str]
"""Which of `_BEGUN`, the groups, and what they are compared with."""


def in_words(compared: Compared, differences: Table, answered: Table) -> str:
    """`. Higher in b than in a: share (b 3 bits, a 1 bits). No difference found between c and a: ...`.

    Of the numbers that answer questions; what differs alike shares a finding. Where some runs read other prompts, it
    counts the differences on the same and on other prompts apart, with one example of each.
    """
    read = {group: [run.record.prompts.get("hash") for run in runs] for group, runs in compared.groups.items()}
    judged = [row for row in differences.rows() if row["verdict"] in JUDGED]
    apart = {row["group"] for row in judged if read[row["group"]] != read[row["against"]]}
    if not apart:
        found = _findings(compared, differences, answered, compared.groups)
        parts = [_in_words(of, numbers[:N_NAMED]) for of, numbers in found[:N_FINDINGS]]
        return "".join(f". {part[0].upper()}{part[1:]}" for part in parts)
    parts = []
    same = {row["group"] for row in judged} - apart
    for chosen, where in ((same, "On the same prompts"), (apart, "On other prompts, which alone can be the cause")):
        groups = [group for group in compared.groups if group in chosen]
        moved = [row["verdict"] == "moved" for row in judged if row["is_headline"] and row["group"] in chosen]
        if moved:
            parts.append(f". {where}, {sum(moved)} of {len(moved)} differ in {about.listed(groups)}")
            found = _findings(compared, differences, answered, groups)
            parts += [f": for example {_in_words(of, numbers[:1])}" for of, numbers in found[:1]]
    return "".join(parts)


def _findings(
    compared: Compared, differences: Table, answered: Table, groups: Iterable[str]
) -> list[tuple[_Finding, list[str]]]:
    """What these groups' numbers show: first what differs, no control says otherwise, and most of them share."""
    rows, asked = {KEY(row): row for row in differences.rows()}, [*dict.fromkeys(answered["question"])]
    _, shown = said_and_shown(answered.rows(), rows.values())
    found: dict[_Finding, dict[str, tuple[bool, str]]] = {}  # by number whether a control says otherwise, and words
    for each in sorted(answered.rows(), key=lambda row: asked.index(row["question"])):
        key = each["probe"], each["name"]
        alike: dict[tuple[int, str, str], list[_Row]] = {}
        for row in (rows[*key, group] for group in groups if (*key, group) in rows):
            kind = _kind(row, rows.get((*key, row["against"])), shown)
            if kind is not None:
                alike.setdefault((kind, row["against"], _objections(compared, row, rows)), []).append(row)
        for (kind, against, but), mine in alike.items():
            told = _values(mine, rows[*key, against], shown, but)
            finding = found.setdefault((kind, tuple(row["group"] for row in mine), against), {})
            finding.setdefault(key[1].replace("_no_first", ""), (but != "", told))
    agreeing = {of: sorted(numbers.values(), key=itemgetter(0)) for of, numbers in found.items()}

    def rank(of: _Finding) -> tuple[bool, bool, int]:
        return of[0] == _ALIKE, agreeing[of][0][0], -len(agreeing[of]) * len(of[1])

    return [(of, [told for _, told in agreeing[of]]) for of in sorted(agreeing, key=rank)]


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
    """`; not so with the first position`: the controls whose difference is another one."""
    controls = compared.controls(row["probe"], row["name"])
    sides = {words: _side(rows.get((row["probe"], name, row["group"]))) for name, words in controls.items()}
    other = [words for words, side in sides.items() if side not in (None, _side(row))]
    return f"; not so {about.listed(other)}" if other else ""


def _values(rows: Sequence[_Row], reference: _Row, shown: set[Any], but: str) -> str:
    """`share (b 3 bits, a 1 bits)`: one number of one or several groups, then of their reference."""
    alone = [f"{row['group']} {_value(row, shown)}" for row in (rows[0], reference)]
    values = [row["value"] for row in rows]
    range_of = with_unit(" to ".join(dict.fromkeys(map(short, (min(values), max(values))))), reference["unit"])
    name = label(reference["probe"], reference["name"], reference["meaning"])
    return f"{name} ({alone[0] if len(rows) == 1 else range_of}; {alone[1]}{but})"


def _value(row: _Row, shown: set[Any]) -> str:
    return with_unit(short(row["value"]), row["unit"]) + ("" if KEY(row) in shown else ", as by chance")


def _in_words(of: _Finding, numbers: Sequence[str]) -> str:
    kind, groups, against = of
    return f"{_BEGUN[kind].format(about.listed([*groups]), against)}: {'; '.join(numbers)}"
