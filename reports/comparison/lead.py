"""What the answer of a comparison says: who read what, then what differs and what does not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp.formatting import short, with_unit
from interp.records.labels import label
from interp.table import Table

from ..page import about
from ..page.sections import KEY, said_and_shown
from .runs import Compared, Run

JUDGED = ("moved", "within")
N_FINDINGS, N_NAMED = 2, 2
"""Findings, and numbers that each names, at most; one, where it has to be said first who read what."""
_BEGUN = (
    "Higher in {0} than in {1}", "Lower in {0} than in {1}", "Different from chance in {0} but not in {1}",
    "Different from chance in {1} but not in {0}", "No difference found between {0} and {1}",
)  # fmt: skip
_ONLY, _ALIKE = (2, 3), 4
_Row = Mapping[Any, Any]


def in_words(compared: Compared, differences: Table, answered: Table) -> str:
    """`. Higher in b than in a: share (b 3 bits, a 1 bits). No difference found between c and a: ...`.

    Of the numbers that answer questions, those whose controls agree; what differs alike shares a finding. Differences
    on the same prompts come first.
    """
    rows, asked = {KEY(row): row for row in differences.rows()}, [*dict.fromkeys(answered["question"])]
    _, shown = said_and_shown(answered.rows(), rows.values())
    read = {group: [run.record.prompts.get("hash") for run in runs] for group, runs in compared.groups.items()}
    found: dict[tuple[int, bool, tuple[str, ...], str], dict[str, str]] = {}
    for each in sorted(answered.rows(), key=lambda row: asked.index(row["question"])):
        probe, name = each["probe"], each["name"]
        alike: dict[tuple[int, bool, str], list[_Row]] = {}
        for group in (group for *of, group in rows if of == [probe, name]):
            controls = [rows.get((probe, control, group)) for control in compared.controls(probe, name)]
            row, against = rows[probe, name, group], rows[probe, name, group]["against"]
            here, there = ((probe, name, of) in shown for of in (group, against))
            if (kind := _kind(row, here, there, controls)) is not None:
                alike.setdefault((kind, read[group] != read[against], against), []).append(row)
        for (kind, is_apart, against), mine in alike.items():
            finding = found.setdefault((kind, is_apart, tuple(row["group"] for row in mine), against), {})
            values = _values(mine, rows[probe, name, against], with_nulls=kind in _ONLY)
            finding.setdefault(name.replace("_no_first", ""), values)
    first = sorted(found, key=lambda of: (of[0] // 2, of[1], -len(found[of]) * len(of[2])))[:N_FINDINGS]
    apart = _read_apart(compared, read)
    parts = []
    for kind, is_apart, groups, against in first:
        begun = _BEGUN[kind].format(about.listed([*groups]), against)
        on = f"On {'other' if is_apart else 'the same'} prompts, {begun[0].lower()}{begun[1:]}" if apart else begun
        named = [*found[kind, is_apart, groups, against].values()][: 1 if apart else N_NAMED]
        parts.append(f". {on}: {'; '.join(named)}")
    return apart + "".join(parts)


def _kind(row: _Row, here: bool, there: bool, controls: Sequence[_Row | None]) -> int | None:
    """Which of `_BEGUN` a row is; None of what neither shows, was not tested, or has a control that says otherwise."""
    side = _side(row)
    objects = any(control is not None and _side(control) not in (side, None) for control in controls)
    if row["verdict"] not in JUDGED or objects or not (here or there):
        return None
    return _ALIKE if not side else 3 - here if here != there else int(side < 0)


def _side(row: _Row) -> int | None:
    """1 or −1 as a number is higher or lower, 0 where no difference was found; None where it was not tested."""
    return {"moved": 1 if row["difference"] > 0 else -1, "within": 0, "same": 0}.get(row["verdict"])


def _values(rows: Sequence[_Row], reference: _Row, with_nulls: bool) -> str:
    """`share (b 3 bits, a 1 bits)`: one number of one or several groups, then of their reference."""

    def told(row: _Row) -> str:
        is_known = with_nulls and math.isfinite(row["null_low"])
        null = f", chance {short(row['null_low'])} to {short(row['null_high'])}" if is_known else ""
        return f"{row['group']} {with_unit(short(row['value']), row['unit'])}{null}"

    values = [row["value"] for row in rows]
    range_of = with_unit(" to ".join(dict.fromkeys(map(short, (min(values), max(values))))), reference["unit"])
    name = label(reference["probe"], reference["name"], reference["meaning"])
    return f"{name} ({told(rows[0]) if len(rows) == 1 else range_of}{';' if with_nulls else ','} {told(reference)})"


def _read_apart(compared: Compared, read: Mapping[str, Sequence[Any]]) -> str:
    """`. a (135M parameters) and b (3M parameters) read ...; c read ...`; empty where all read the same."""
    alike: dict[tuple[Any, ...], list[Run]] = {}
    for run in compared.runs:
        alike.setdefault(tuple(read[run.group]), []).append(run)
    parts = []
    for runs in alike.values() if len(alike) > 1 else ():
        sizes = {run.group: about.size(run.record) for run in runs}
        named = about.listed([f"{group} ({size})" if size else group for group, size in sizes.items()])
        sets = about.listed([*dict.fromkeys(each for run in runs for each in about.sets(run.record))])
        parts.append(f"{named} read {sets}")
    return f". {'; '.join(parts)}, so that the prompts alone can make them differ" if parts else ""
