"""The tables of a comparison: numbers of every run, differences from the reference, curves, settings and answers.

A difference of single runs has the interval recovered from theirs (`interp.records.diff`), one of groups Welch's t
interval over runs, whose spread includes the uncertainty within a run.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy import special

from interp.findings import Interval, Scalar
from interp.formatting import cell
from interp.records.answers import SAID, answers
from interp.records.diff import Shift
from interp.statistics.intervals import NORMAL, TMean, t_mean, t_quantile
from interp.table import LABEL, Table, number_columns

from ..page import about
from ..page.sections import question_of
from .runs import Compared, Run

_Row = dict[str, object]

MOVER = "recovered from both intervals (MOVER)"
WELCH = "Welch's t over runs"
OTHER = "none: of another target, so not compared"
_PLACE = {"layer": -1, "depth": 0}
"""Columns of depth, and what to add to the number of layers for the last one."""


def _number_rows(compared: Compared) -> Iterator[_Row]:
    for key in compared.shared:
        for run in (run for run in compared.runs if key in run.scalars):
            s = run.scalars[key]
            low, high = s.interval or (math.nan, math.nan)
            yield {
                "run": run.label, "group": run.group, **_about(key, s, compared), "value": s.value, "low": low,
                "high": high, **_null_of([s]), "p": math.nan if s.p is None else s.p,
                "n": math.nan if s.n is None else float(s.n),
            }  # fmt: skip


def _difference_rows(compared: Compared) -> Iterator[_Row]:
    groups = compared.groups
    for key in compared.shared:
        for group, against in compared.against.items():
            mine = _scalars(groups[group], key)
            if not mine:
                continue
            theirs = _scalars(groups[against], key) if against else []
            value = estimate(mine)
            is_other = against is not None and compared.is_of_other_target(group, against, *key)
            difference, verdict, method = (_alone(math.nan), "", OTHER) if is_other else difference_of(theirs, mine)
            yield {
                "group": group, "against": against or "", **_about(key, mine[0], compared), "n_runs": len(mine),
                "value": value.value, "low": value.low, "high": value.high, **_null_of(mine),
                **number_columns("difference", difference.value, (difference.low, difference.high)),
                "p": difference.p, "verdict": verdict, "method": method, "meaning": mine[0].meaning,
            }  # fmt: skip


def estimate(repetitions: Sequence[Scalar]) -> TMean:
    """The mean over runs with its 95 % t interval; of a single run its value and its own interval."""
    if len(repetitions) == 1:
        return TMean(repetitions[0].value, *(repetitions[0].interval or (math.nan, math.nan)), math.nan)
    return t_mean([s.value for s in repetitions])


def difference_of(theirs: Sequence[Scalar], mine: Sequence[Scalar]) -> tuple[TMean, str, str]:
    """Mine minus theirs, the verdict (see `interp.records.diff`), and the method; NaN without a reference."""
    if not theirs:
        return _alone(math.nan), "", ""
    if len(mine) == len(theirs) == 1:
        moved = Shift("", "", theirs[0], mine[0])
        if moved.interval is None:
            return _alone(moved.difference), moved.verdict, ""
        return _with_p(moved.difference, *moved.interval), moved.verdict, MOVER
    x, y = np.array([s.value for s in theirs]), np.array([s.value for s in mine])
    difference = float(y.mean() - x.mean())
    if min(len(x), len(y)) < 2 or not np.isfinite([*x, *y]).all():
        return _alone(difference), "", "none: a group has one run, or a run without the number"
    spread = np.array([a.var(ddof=1) / len(a) for a in (x, y)])
    if not spread.any():
        return _alone(difference), "differs" if difference else "same", "none: no spread between runs"
    freedom = spread.sum() ** 2 / (spread**2 / (np.array([len(x), len(y)]) - 1)).sum()
    half = t_quantile(freedom + 1) * math.sqrt(spread.sum())
    verdict = "moved" if abs(difference) > half else "within"
    p = float(2 * special.stdtr(freedom, -abs(difference) / math.sqrt(spread.sum())))
    return TMean(difference, difference - half, difference + half, p), verdict, WELCH


def _alone(difference: float) -> TMean:
    return TMean(difference, math.nan, math.nan, math.nan)


def _with_p(difference: float, low: float, high: float) -> TMean:
    """A difference with its two-sided p, by a normal distribution from the side of the interval that faces 0."""
    half = difference - low if difference > 0 else high - difference
    p = float(2 * special.ndtr(-NORMAL * abs(difference) / half)) if half > 0 else math.nan
    return TMean(difference, low, high, max(p, sys.float_info.min))


def _curve_rows(compared: Compared) -> Iterator[_Row]:
    """Curves of two or more runs along the fraction of their depth, means over the runs of a group."""
    by_group = {group: [_curves(run) for run in runs] for group, runs in compared.groups.items()}
    every = [curves for runs in by_group.values() for curves in runs]
    keys = [key for key in dict.fromkeys(k for curves in every for k in curves) if sum(key in c for c in every) > 1]
    return (
        {"group": group, "probe": key[0], "table": key[1], "measure": key[2], "unit": key[3], **point}
        for key in keys
        for group, runs in by_group.items()
        for point in _mean_curve([curves[key] for curves in runs if key in curves])
    )


_Curve = dict[str, np.ndarray]
_Key = tuple[str, str, str, str]


def _curves(run: Run) -> dict[_Key, _Curve]:
    """The columns of a run's tables with an interval or a null and one row per layer."""
    found: dict[_Key, _Curve] = {}
    n_layers = int(run.record.model.get("n_layers") or 0)
    for probe, findings in run.record.findings.items():
        for name, table in findings.tables.items():
            place = next((column for column in _PLACE if column in table), None)
            measures = _measures(table)
            if place is None or not measures:
                continue
            depth = table[place].astype(float) / max(n_layers + _PLACE[place], 1)
            for said, rows in _slices(table, place):
                for measure in measures:
                    key = (probe, name, f"{measure} ({said})" if said else measure, table.units[measure])
                    columns = {"value": measure} | {part: f"{measure}_{part}" for part in ("low", "high", "null")}
                    found[key] = {"depth": depth[rows]} | {
                        part: table[column][rows].astype(float) if column in table else np.full(len(rows), math.nan)
                        for part, column in columns.items()
                    }
    return found


def _slices(table: Table, place: str) -> Iterator[tuple[str, np.ndarray]]:
    """Parts of a table with one row per layer: all rows, or those of each label."""
    labels = [column for column, unit in table.units.items() if unit == LABEL]
    rows = np.arange(table.n_rows)
    said = np.array([", ".join(str(table[column][i]) for column in labels) for i in rows], dtype=str)
    for each in dict.fromkeys(said.tolist()):
        mine = rows[said == each]
        if len(set(table[place][mine].tolist())) == len(mine):
            yield each, mine


def _measures(table: Table) -> list[str]:
    return [
        column for column in table.columns
        if (f"{column}_low" in table or f"{column}_null" in table) and not column.endswith("_null")
        and table[column].dtype.kind in "fiu"
    ]  # fmt: skip


def _mean_curve(runs: Sequence[_Curve]) -> Iterator[_Row]:
    """The mean over runs at every depth that all have; a single run has its own intervals."""
    if not runs:
        return
    depths = [d for d in runs[0]["depth"] if all(d in run["depth"] for run in runs)]
    for depth in depths:
        at = [{part: float(column[run["depth"] == depth][0]) for part, column in run.items()} for run in runs]
        null = float(np.mean([point["null"] for point in at]))
        value = estimate([Scalar.of(p["value"], "", Interval(p["low"], p["high"], "-"), "-") for p in at])
        yield {"depth": float(depth), "value": value.value, "low": value.low, "high": value.high, "null": null,
               "n_runs": len(at)}  # fmt: skip


def _setting_rows(compared: Compared) -> Iterator[_Row]:
    for path, values in compared.what_varies().items():
        for run, value in zip(compared.runs, values, strict=True):
            yield {"setting": path, "run": run.label, "value": value if isinstance(value, str) else cell(value)}


def _answer_rows(compared: Compared) -> Iterator[_Row]:
    for run in compared.runs:
        for each in answers(run.record, "the model", every=True):
            probe, name = each.headline.probe, each.headline.name
            question = question_of(probe) if each.verdict == "number" else each.question
            said = SAID[each.verdict].rstrip(".") + " (control undecided)" * bool(each.vague)
            yield {"question": question, "group": run.group, "probe": probe, "name": name, "said": said}


def _run_rows(compared: Compared) -> Iterator[_Row]:
    for run in compared.runs:
        yield {"run": run.label, "read": about.briefly(run.record), "quantised": run.record.quantised}


def _about(key: tuple[str, str], s: Scalar, compared: Compared) -> _Row:
    return {"probe": key[0], "name": key[1], "unit": s.unit, "is_headline": key in compared.headline}


def _scalars(runs: Sequence[Run], key: tuple[str, str]) -> list[Scalar]:
    return [run.scalars[key] for run in runs if key in run.scalars]


def _null_of(repetitions: Sequence[Scalar]) -> dict[str, object]:
    nulls = [(s.null.value, *s.null.band) for s in repetitions if s.null is not None]
    value, *band = np.mean(nulls, axis=0).tolist() if nulls else (math.nan,) * 3
    return number_columns("null", value, band)


_UNITS = {
    **dict.fromkeys(("value", "low", "high", "null", "difference", "mean", "deviation"), "of the number"),
    "is_headline": "boolean", "n_runs": "runs", "n": "1", "depth": "fraction",
    "p": "probability",
}  # fmt: skip
"""Units of columns; the others are labels."""
_TABLES: Mapping[str, tuple[Callable[[Compared], Iterable[_Row]], str, str]] = {
    "answers": (_answer_rows, "question group probe name said", "What every run answers."),
    "differences": (
        _difference_rows,
        "group against probe name unit is_headline n_runs value low high null difference p verdict method meaning",
        "Means over the runs of a group with t intervals, or single runs with their own, compared with the reference.",
    ),
    "numbers": (
        _number_rows, "run group probe name unit is_headline value low high null p n",
        "Every number of every run, with its own interval and null.",
    ),
    "curves": (
        _curve_rows, "group probe table measure unit depth value low high null n_runs",
        "Depth 0 is the first layer (the embedding, where a table counts depths), 1 the last.",
    ),
    "settings": (_setting_rows, "setting run value", "Names and fingerprints of the models left aside."),
    "runs": (_run_rows, "run read quantised", "Model and prompts of every run."),
}  # fmt: skip


def tables(compared: Compared) -> dict[str, Table]:
    """All tables by name."""
    return {
        name: Table.from_rows(rows(compared), {c: _UNITS.get(c, LABEL) for c in columns.split()}, caption)
        for name, (rows, columns, caption) in _TABLES.items()
    }
