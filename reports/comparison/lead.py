"""What a comparison finds for every measurement, and its answer in a sentence.

A measurement can have several numbers: without and with the first position, at a fixed and at the best layer. The first
has the row and decides. Others, its controls, and its value minus the null are variants; the difference counts only if
all variants confirm it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interp.findings import ALPHA
from interp.formatting import short
from interp.records.headlines import corrected
from interp.records.labels import NO_FIRST, label, with_first
from interp.table import Table

from ..page import about
from ..page.sections import (
    ALIKE,
    CHANCE,
    CONFIRMED,
    COUNTED,
    FOUND,
    HARDLY,
    KEY,
    REFERENCE,
    UNCHECKED,
    UNSURE,
    answering_first,
    said_and_shown,
)
from .runs import Compared

JUDGED = ("moved", "within")
_COMPARED = (*JUDGED, "same")
_BEST_LAYER = "best_layer_"
_VARIANTS = {
    "_all_positions": "averaged over all positions",
    "_dropped": "without the dimensions of largest variance",
}
_SCORED = {("sula", "slope"), ("sula", "skill"), ("sula", "kl_skill")}
_LEAST_MASS = 0.01  # of the probability that the answers scored should have together
_NULLS_SHARE = 0.5  # of a difference, from which on its nulls may be all of it
_HOW = {CONFIRMED: "confirmed by another way of measuring", UNCHECKED: "measured in one way only"}
_NAMED = 4  # measurements that differ and that the answer names
_FEW = 2  # variants that hold whose values a note gives
_AS_LARGE = 3  # times another difference, or a third of it: of the same size
_SAME = {("value_axis", "pc1_correlation"): ("manifold", "entropy_correlation")}
"""Numbers of two probes for the same measurement."""
_Row = Mapping[Any, Any]
Found = list[tuple[str, str]]
"""The finding and a note for every row of the table of differences; empty if its measurement has another row."""


def comparable(compared: Compared, found: Mapping[str, Table]) -> list[str]:
    """The groups with tested differences on the prompts of their reference; if there are none, all."""
    apart = about.on_other_prompts(found)
    tested = {row["group"] for row in found["differences"].rows() if row["verdict"] in JUDGED}
    every = [group for group, against in compared.against.items() if against]
    return [group for group in every if group in tested - apart] or every


def sure_of(differences: Table, groups: Sequence[str]) -> set[Any]:
    """The headline differences of these groups that are significant after correction.

    Correction: Benjamini and Yekutieli (2001, Annals of Statistics), valid under any dependence of the numbers.
    """
    known = [row for row in differences.rows() if _is_tested(row, groups) and np.isfinite(row["p"])]
    harmonic = sum(1 / k for k in range(1, len(known) + 1))
    ranked = corrected([row["p"] for row in known])
    return {KEY(row) for row, p in zip(known, ranked, strict=True) if harmonic * (p or 0.0) <= ALPHA}


def findings_of(compared: Compared, tables: Mapping[str, Table], groups: Sequence[str]) -> Found:
    """The finding for every measurement of `groups`, at its row of the table of differences."""
    rows = {KEY(row): row for row in tables["differences"].rows()}
    judge = _Judge(compared, rows, sure_of(tables["differences"], groups), said_and_shown(tables)[1])
    measured: dict[tuple[str, str, str], list[_Row]] = {}
    for row in rows.values():
        if row["verdict"] in _COMPARED:
            measured.setdefault((*_measure(row["probe"], row["name"]), row["group"]), []).append(row)
    found = {key: ("", "" if row["verdict"] else row["method"].removeprefix("none: ")) for key, row in rows.items()}
    for of_one in measured.values():
        tested = sorted((row for row in of_one if _is_tested(row, groups)), key=lambda row: NO_FIRST not in row["name"])
        if tested:
            found[KEY(tested[0])] = judge.found(tested[0], [row for row in of_one if row is not tested[0]])
    return [*found.values()]


def in_words(tables: Mapping[str, Table], groups: list[str], found: Found) -> str:
    """`Yes: 1 of 22 measurements on the same prompts differs, …`: these, then the others."""
    rows = {KEY(row): row for row in tables["differences"].rows()}
    of_row = dict(zip(rows, found, strict=True))
    of_kind: dict[str, list[_Row]] = {kind: [] for kind in ("", *FOUND)}
    for row in answering_first(rows.values(), tables):
        of_kind[of_row[KEY(row)][0]].append(row)
    n, n_all = (sum(len(of_kind[kind]) for kind in kinds) for kinds in (COUNTED, FOUND))
    same = "" if about.on_other_prompts(tables).intersection(groups) else " on the same prompts"
    none = "Not clearly" if of_kind[UNSURE] or of_kind[HARDLY] else "No sign of it"
    said = [f"{'Yes' if n else none}: {n or 'none'} of {n_all} measurements{same} differ{'s' * (n < 2)}"]
    counts = {how: len(of_kind[kind]) for kind, how in _HOW.items() if of_kind[kind]}
    said[0] += "".join(f", {f'{count} ' * (len(counts) > 1)}{how}" for how, count in counts.items())
    if of := of_kind[CONFIRMED]:
        how = f"; the difference {of_row[KEY(of[0])][1].partition('; ')[0]}" * (len(of) == 1)
        said += [f"Confirmed: {each}{how}" for each in _named(of, rows)]
    if of := of_kind[UNCHECKED]:
        said += [f"Measured in one way only: {each}" for each in _named(of, rows)]
    said += _not_counted(of_kind, rows)
    if of := of_kind[ALIKE]:
        such = f", for example {_label(of[0])}," if len(of) > 1 else f" ({_label(of[0])})"
        said.append(f"In {len(of)}{such} no difference was found, which does not show that there is none")
    if of := of_kind[CHANCE]:
        those = f"One cannot be judged, {_label(of[0])}" if len(of) == 1 else f"{len(of)} cannot be judged"
        said.append(f"{those}: in one model the value is no more than chance gives")
    return ". ".join(said) + "."


def _named(of: Sequence[_Row], rows: Mapping[Any, _Row]) -> list[str]:
    more = [f"{len(of) - _NAMED} more"] * (len(of) > _NAMED)
    said = []
    for row in of[:_NAMED]:
        reference, name = rows[REFERENCE(row)], label(row["probe"], row["name"], row["meaning"])
        than = f"than in {reference['group']} ({short(reference['value'])})"
        is_lower = row["value"] < reference["value"]
        said.append(f"{name} is {'lower' if is_lower else 'higher'} in {row['group']} ({short(row['value'])}) {than}")
    return said + more


def _not_counted(of_kind: Mapping[str, Sequence[_Row]], rows: Mapping[Any, _Row]) -> list[str]:
    left = []
    if n := len(of_kind[UNSURE]):
        left.append(f"{n} found in one way of measuring and not, or reversed, in another")
    if hardly := of_kind[HARDLY]:
        by = about.listed(sorted({group for row in hardly for group, _ in hardly_answering(rows, row)}))
        left.append(f"{len(hardly)} scored on answers to which {by} gives almost no probability")
    return [f"Not counted: {', and '.join(left)}"] * bool(left)


def hardly_answering(rows: Mapping[Any, _Row], row: _Row) -> list[tuple[str, float]]:
    """The groups that give the scored answers almost no probability, with this probability."""
    if (row["probe"], row["name"]) not in _SCORED:
        return []
    mass = [rows.get(("sula", "outcome_mass", row[column])) for column in ("against", "group")]
    return [(each["group"], each["value"]) for each in mass if each is not None and each["value"] < _LEAST_MASS]


def goes_with_null(row: _Row, reference: _Row) -> bool:
    """Whether the nulls of two values differ in the same direction by at least half as much."""
    return bool((row["null"] - reference["null"]) / row["difference"] >= _NULLS_SHARE)


def _label(row: _Row) -> str:
    said = label(row["probe"], row["name"], row["meaning"])
    return said[:1].lower() + said[1:] if said[1:2].islower() else said


def _is_tested(row: _Row, groups: Sequence[str]) -> bool:
    return bool(row["is_headline"] and row["group"] in groups and row["verdict"] in JUDGED)


def _measure(probe: str, name: str) -> tuple[str, str]:
    """The measurement of a number: probe, and name without the variant."""
    bare = with_first(name).removeprefix(_BEST_LAYER)
    for ending in _VARIANTS:
        bare = bare.removesuffix(ending)
    return _SAME.get((probe, name), (probe, bare))


@dataclass(frozen=True)
class _Judge:
    """All rows, the significant ones (`sure`), and those beyond their nulls (`shown`)."""

    compared: Compared
    rows: Mapping[Any, _Row]
    sure: set[Any]
    shown: set[Any]

    def found(self, row: _Row, variants: Sequence[_Row]) -> tuple[str, str]:
        """The finding for a measurement, from its row and variants, and a note."""
        own, others = self.side(row), [(words, each) for each in variants if (words := _variant(each, row))]
        if not own:
            chance = self._chance(row) if KEY(row) in self.sure else []
            is_lost = row["verdict"] == "moved" and KEY(row) not in self.sure
            differing = [f"differs {words}: {self._values(each)}" for words, each in others if self.side(each)]
            notes = [*chance, *["not significant after correction"] * is_lost, *differing]
            return CHANCE if chance else ALIKE, "; ".join(notes)
        others += self._controls(row, variants)
        tried = [self._tried(row, words, self._values(e), e["difference"] * abs(self.side(e))) for words, e in others]
        tried += self._minus_nulls(row)
        kinds, hardly = {kind for kind, *_ in tried}, hardly_answering(self.rows, row)
        holding = [words for kind, words, _ in tried if kind == CONFIRMED]
        notes = [f"{who} gives all possible answers together a probability of {short(mass)}" for who, mass in hardly]
        notes += [note for kind, _, note in tried if kind != CONFIRMED or len(holding) <= _FEW]
        notes += [f"holds {about.listed(holding)}"] * (len(holding) > _FEW)
        kind = UNSURE if UNSURE in kinds else HARDLY if hardly else CONFIRMED if kinds else UNCHECKED
        return kind, "; ".join(notes)

    def _tried(self, row: _Row, words: str, values: str, difference: float) -> tuple[str, str, str]:
        """The finding of a variant, its words, and a note; its `difference` is 0 if it finds none."""
        if not difference:
            return UNSURE, words, f"no difference {words}: {values}"
        times = difference / row["difference"]
        is_as_large = 1 / _AS_LARGE <= times <= _AS_LARGE
        kind = CONFIRMED if is_as_large else UNSURE
        how = "holds" if is_as_large else "reversed" if times < 0 else "much larger" if times > 1 else "much smaller"
        is_stated = times > 0 and not 0.6 < times < 1.7
        size = f", {times:.2g} times as large," * is_stated
        return kind, words, f"{how}{size} {words}: {values}"

    def _minus_nulls(self, row: _Row) -> list[tuple[str, str, str]]:
        """The variant with the null subtracted, if the nulls make at least half of the difference."""
        reference = self.rows[REFERENCE(row)]
        if not goes_with_null(row, reference):
            return []
        shift = row["null"] - reference["null"]
        is_left = row["difference_low"] > shift or row["difference_high"] < shift
        values = " and ".join(short(each["value"] - each["null"]) for each in (row, reference))
        left = (row["difference"] - shift) * is_left
        return [self._tried(row, "with each model's baseline subtracted", values, left)]

    def _values(self, row: _Row) -> str:
        return f"{short(row['value'])} and {short(self.rows[REFERENCE(row)]['value'])}"

    def side(self, row: _Row) -> int:
        """1 or −1 if a number is significantly higher or lower than the reference's, else 0."""
        is_moved = KEY(row) in self.sure if row["is_headline"] else row["verdict"] == "moved"
        return 0 if not is_moved or self._chance(row) else 1 if row["difference"] > 0 else -1

    def _controls(self, row: _Row, variants: Sequence[_Row]) -> list[tuple[str, _Row]]:
        """The other compared controls, with their words."""
        controls = self.compared.controls(row["probe"], row["name"]).items()
        found = [(words, self.rows.get((row["probe"], name, row["group"]))) for name, words in controls]
        return [
            (words, each) for words, each in found if each and each not in variants and each["verdict"] in _COMPARED
        ]

    def _chance(self, row: _Row) -> list[str]:
        """The values within their null, unless the one beyond its null is further from it than the other."""
        pair = [self.rows[REFERENCE(row)], row]
        there, here = (KEY(each) in self.shown for each in pair)
        was, now = (abs(each["value"] - each["null"]) for each in pair)
        if (here or there) and (here == there or (now > was) == here):
            return []
        return [
            f"{each['group']}: {short(each['value'])}, and chance alone gives {short(each['null_low'])} to "
            f"{short(each['null_high'])}"
            for each, is_beyond in zip(pair, (there, here), strict=True) if not is_beyond
        ]  # fmt: skip


def _variant(row: _Row, first: _Row) -> str:
    """How a number differs from the first of its measurement; empty if in more than one way."""
    if (row["probe"], row["name"]) in _SAME:
        return "with the axis fitted on half of the prompts and read on the others"
    words = [words for ending, words in _VARIANTS.items() if row["name"].endswith(ending)]
    if (_BEST_LAYER in row["name"]) != (_BEST_LAYER in first["name"]):
        words.append(
            "at the layer that is best for each" if _BEST_LAYER in row["name"] else "at the layer set beforehand"
        )
    if (NO_FIRST in row["name"]) != (NO_FIRST in first["name"]):
        words.append("without the first position" if NO_FIRST in row["name"] else "with the first position")
    return words[0] if len(words) == 1 else ""
