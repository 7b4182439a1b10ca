"""The sections of the page: question, figures, tables and numbers of each probe, and the tables of a comparison."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from interp.errors import InterpError
from interp.findings import Findings, Scalar
from interp.formatting import short
from interp.probe import Figure, Question
from interp.records.answers import Answer
from interp.records.headlines import Headline, headlines
from interp.records.labels import label, label_with_unit
from interp.records.power import class_of
from interp.records.record import RunRecord
from interp.registry import load_entry
from interp.settings import read_fields
from interp.table import Table

from ..plotly.prepare import Plot, prepare, undrawable
from .security import script_json
from .shipped import TRUTHS, Calibration, calibrations, certificate_line, the_tunnel
from .strip import Strip, strip
from .tabulate import Listing, listings


@dataclass(frozen=True)
class Number:
    """A scalar with its name, its strip if one can be drawn, and its values on known models.

    `headline` is its entry among the headlines. `truth` is the value of exact predictions on the shipped tunnel, with
    words for it, if known; on the page of the tunnel itself the strip shows it.
    """

    probe: str
    name: str
    scalar: Scalar
    strip: Strip | None
    headline: Headline | None = None
    calibrated: tuple[tuple[Calibration, Scalar], ...] = ()
    truth: tuple[float, str] | None = None


@dataclass(frozen=True)
class Drawn:
    """A figure on the page; `problem` is the reason if it is not drawn, `table_above` its table if shown earlier."""

    id: str
    title: str
    reading: str
    plot: Plot | None
    data: str
    problem: str | None
    table: Listing | None
    table_above: Listing | None


@dataclass(frozen=True)
class Section:
    """One probe; `problem` is the reason for missing figures, `certified` a sentence and its address."""

    probe: str
    question: str
    problem: str | None
    figures: tuple[Drawn, ...]
    numbers: tuple[Number, ...]
    tables: tuple[Listing, ...]
    notes: tuple[str, ...]
    certified: tuple[str, str]


def sections(record: RunRecord) -> tuple[Section, ...]:
    """One section a probe, in the order of the record."""
    tables = listings({name: findings.tables for name, findings in record.findings.items()})
    return tuple(_section(record, name, findings, tables[name]) for name, findings in record.findings.items())


def headline(record: RunRecord) -> tuple[Number, ...]:
    """The headline numbers."""
    is_tunnel = the_tunnel().is_of(record)
    others = [known for known in calibrations() if not known.is_of(record)]
    found = []
    for each in headlines(record.findings):
        name = f"{each.probe}.{each.name}"
        truth = TRUTHS.get(name)
        drawn = strip(each.scalar, truth[0] if truth and is_tunnel else math.nan)
        has_target = "target" in record.spec.get("probes", {}).get(each.probe, {})
        comparable = () if has_target else others  # the known models were read for the default
        beside = tuple((known, known.numbers[name]) for known in comparable if name in known.numbers)
        found.append(Number(each.probe, each.name, each.scalar, drawn, each, beside, truth))
    return tuple(found)


def _tables(findings: Mapping[str, Findings]) -> Mapping[str, Table]:
    """The tables of a comparison; empty if an earlier version made it."""
    tables = findings["comparison"].tables if "comparison" in findings else {}
    return tables if "found" in tables.get("differences", ()) else {}


def _compared(tables: Mapping[str, Table]) -> Iterator[tuple[Mapping[Any, Any], str]]:
    """Each headline number of each group in a comparison: its row and label."""
    table = tables.get("differences")
    for row in () if table is None else table.rows():
        if row["is_headline"]:
            yield row, label(row["probe"], row["name"], row["meaning"])


@dataclass(frozen=True)
class Difference:
    """A measurement of a comparison: its value, that of the reference, the first minus the second, and a note."""

    name: str
    values: tuple[str, str]
    difference: str
    interval: str
    note: str


CONFIRMED, UNCHECKED, UNSURE, HARDLY, CHANCE, ALIKE = FOUND = (
    "Differ, in every way of measuring",
    "Differ, measured in one way only",
    "Not counted: the difference depends on the way of measuring",
    "Not counted: scores of answers that one of the two models hardly ever gives",
    "Cannot be judged: in one model the value is no more than chance gives",
    "No difference found, which does not show that there is none",
)
COUNTED = (CONFIRMED, UNCHECKED)


def differences(findings: Mapping[str, Findings]) -> dict[tuple[str, str], dict[str, list[Difference]]]:
    """The measurements of each group and its reference by what was found, in the order of the questions."""
    tables = _tables(findings)
    rows = {KEY(row): row for row, _ in _compared(tables)}
    found: dict[tuple[str, str], dict[str, list[Difference]]] = {}
    for row in answering_first(rows.values(), tables):
        if row["found"] and (reference := rows.get(REFERENCE(row))):
            parts = found.setdefault((row["group"], row["against"]), {kind: [] for kind in FOUND})
            values = short(row["value"]), short(reference["value"])
            change, low, high = (short(row[column]) for column in ("difference", "difference_low", "difference_high"))
            name = label_with_unit(row["probe"], row["name"], row["meaning"], row["unit"])
            each = Difference(name, values, change, f"{low} to {high}", row["note"])
            parts.setdefault(row["found"], []).append(each)  # which may be in the words of another version
    return found


def answering_first(rows: Iterable[Mapping[Any, Any]], tables: Mapping[str, Table]) -> list[Mapping[Any, Any]]:
    """Rows of a comparison in the order of the questions that they answer, others last."""
    order = [*dict.fromkeys(key for keys in asked_in(tables).values() for key in keys)]
    place = {key: i for i, key in enumerate(order)}
    return sorted(rows, key=lambda row: place.get(KEY(row)[:2], len(order)))


def asked_in(tables: Mapping[str, Table]) -> dict[str, dict[tuple[str, str], dict[str, str]]]:
    """The questions of a comparison, each with the headline numbers that answer it, and their labels by group."""
    names = {KEY(row): name for row, name in _compared(tables)}
    asked: dict[str, dict[tuple[str, str], dict[str, str]]] = {}
    for row in tables["answers"].rows() if "answers" in tables else ():
        if (name := names.get(KEY(row))) is not None:
            asked.setdefault(row["question"], {}).setdefault((row["probe"], row["name"]), {})[row["group"]] = name
    return asked


@dataclass(frozen=True)
class Cell:
    """A number of one group and its answer; `mark` is the result of its test against the reference."""

    value: str
    mark: str = ""
    null: str = ""
    is_within_null: bool = False
    said: str = ""


_Key = tuple[str, str, str]
KEY, REFERENCE = itemgetter("probe", "name", "group"), itemgetter("probe", "name", "against")
"""The keys of a row of a comparison, and of the row of its reference."""
Rows = tuple[tuple[str, tuple[tuple[str, tuple[Cell, ...]], ...]], ...]
"""Questions with the numbers that answer them by name, a cell for each group."""


def side_by_side(findings: Mapping[str, Findings]) -> tuple[tuple[str, ...], Rows]:
    """The groups of a comparison and their answers; empty in records of earlier versions."""
    tables = _tables(findings)
    found = {KEY(row): (row, name) for row, name in _compared(tables)}
    ran = {(probe, group) for probe, _, group in found}
    asked = asked_in(tables)
    said, shown = said_and_shown(tables) if found else ({}, set())

    def cell(called: Mapping[str, str], probe: str, name: str, group: str) -> Cell:
        row, own = found.get((probe, name, group), (None, ""))
        if row is None or not math.isfinite(row["value"]):
            return Cell("n/a" if (probe, group) in ran or probe == "tunnel" else "not run")
        if group not in called and own not in called.values():
            return Cell("other target")
        marks = {"moved": "▲" if row["difference"] > 0 else "▼", "within": "≈", "same": "≈"}
        is_marked = row["verdict"] != "moved" or {(probe, name, group), (probe, name, row["against"])} & shown
        mark = marks.get(row["verdict"], "") if is_marked else ""
        null = f"{short(row['null_low'])} to {short(row['null_high'])}" if math.isfinite(row["null_low"]) else ""
        within = bool(row["null_low"] <= row["value"] <= row["null_high"])
        return Cell(short(row["value"]), mark, null, within, " / ".join(said.get((probe, name, group), ())))

    groups = tuple(dict.fromkeys(group for *_, group in found)) if asked else ()
    return groups, tuple(
        (
            question,
            tuple(
                (next(iter(called.values())), tuple(cell(called, *key, group) for group in groups))
                for key, called in keys.items()
            ),
        )
        for question, keys in asked.items()
    )


def said_and_shown(tables: Mapping[str, Table]) -> tuple[dict[_Key, dict[str, None]], set[_Key]]:
    """The answers of each number, and the numbers with a positive answer, or without an answer outside their null."""
    said: dict[_Key, dict[str, None]] = {}
    for row in tables["answers"].rows() if "answers" in tables else ():
        if row["said"]:
            said.setdefault(KEY(row), {})[row["said"]] = None
    within = {KEY(row): row["null_low"] <= row["value"] <= row["null_high"] for row in tables["differences"].rows()}
    return said, {k for k in within if (said[k].keys() - {"No", "Not detected"} if k in said else not within[k])}


def question_of(probe: str) -> str:
    """The question of a probe, or of a tunnel's card."""
    if probe == "tunnel":
        return "How far is the tunnel from the exact posterior?"
    cls = class_of(probe)
    return cls.question if cls else probe.replace("_", " ")


def opening(drawn: Sequence[Section], lead: Answer | None) -> Drawn | None:
    """The figure of the first screen: the main one of the leading answer's probe, else the first of the page."""
    own = [section for section in drawn if lead is not None and section.probe == lead.headline.probe]
    return next((figure for section in (*own, *drawn) for figure in section.figures if figure.plot), None)


def _section(record: RunRecord, name: str, findings: Findings, tables: Mapping[str, Listing]) -> Section:
    question, figures, problem = _figures(record, name, findings)
    shown: set[str | None] = set()
    drawn = []
    for figure in figures:
        drawn.append(_drawn(name, figure, tables, shown))
        shown.add(figure.table)
    return Section(
        probe=name,
        question=question,
        problem=problem,
        figures=tuple(drawn),
        numbers=tuple(Number(name, n, s, strip(s)) for n, s in findings.scalars.items() if n not in findings.headline),
        tables=tuple(listing for table, listing in tables.items() if table not in shown),
        notes=findings.notes,
        certified=certificate_line(name, record),
    )


def _figures(record: RunRecord, name: str, findings: Findings) -> tuple[str, tuple[Figure, ...], str | None]:
    """The probe's question and figures, and the reason if the installed probe cannot draw them."""
    question, kind = "", "study" if record.spec.get("study") == name else "probe"
    try:
        cls: type[Question] = load_entry(kind, name)
        question = cls.question
        return question, cls(**read_fields(cls, name, findings.parameters)).figures(findings), None
    except (InterpError, ImportError, LookupError, TypeError, ValueError) as error:
        reason = (
            f"{error.asked}: {error.found}" if isinstance(error, InterpError) else f"{type(error).__name__}: {error}"
        )
        return question, (), f"The installed {kind} “{name}” cannot draw these findings ({reason})."


def _drawn(probe: str, figure: Figure, tables: Mapping[str, Listing], shown: set[str | None]) -> Drawn:
    problem = undrawable(figure.plot)
    plot = None if problem else prepare(figure.plot)
    table = tables.get(figure.table) if figure.table else None
    return Drawn(
        id=f"{probe}-{figure.name}",
        title=figure.title,
        reading=figure.reading,
        plot=plot,
        data=script_json(plot.content) if plot else "",
        problem=problem,
        table=None if figure.table in shown else table,
        table_above=table if figure.table in shown else None,
    )
