"""The tables of a comparison: every number of every run, its distance from the reference, curves, and what differs.

Where there are three models or more, every number is compared with its null by exact sign flips, the model as the unit.
Between single runs a difference has the interval recovered from theirs (`interp.records.diff`). Between groups of
repetitions it is Welch's t interval for the difference of two means over runs: what is uncertain within a run then
shows up, with the rest, in the spread between them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interp.findings import Scalar
from interp.formatting import cell, short
from interp.records.diff import shift
from interp.statistics.exact_sign_flips import sign_flip_p, smallest_p
from interp.statistics.intervals import t_mean, t_quantile
from interp.table import LABEL, Table, number_columns

from .runs import Compared, Run

MOVER = "recovered from both intervals (MOVER)"
WELCH = "Welch's t over runs"
_OF = "of the number"
_PLACE = {"layer": -1, "depth": 0}
"""Columns that say how deep a row is, and what is added to the model's layers to give the last of them."""
_NUMBERS = {
    "run": LABEL, "group": LABEL, "probe": LABEL, "name": LABEL, "unit": LABEL, "is_headline": "boolean", "value": _OF,
    "low": _OF, "high": _OF, "null": _OF, "null_low": _OF, "null_high": _OF, "p": "probability", "n": "1",
    "difference": _OF, "difference_low": _OF, "difference_high": _OF, "verdict": LABEL,
}  # fmt: skip
_SETS = {
    "group": LABEL, "probe": LABEL, "name": LABEL, "unit": LABEL, "is_headline": "boolean", "n_sets": "sets",
    "sets": LABEL, "values": LABEL, "mean": _OF, "deviation": _OF, "low": _OF, "high": _OF, "reason": LABEL,
}  # fmt: skip
_DIFFERENCES = {
    "group": LABEL, "against": LABEL, "probe": LABEL, "name": LABEL, "unit": LABEL, "is_headline": "boolean",
    "n_runs": "runs", "value": _OF, "low": _OF, "high": _OF, "null": _OF, "null_low": _OF, "null_high": _OF,
    "difference": _OF, "difference_low": _OF, "difference_high": _OF, "verdict": LABEL, "method": LABEL,
    "meaning": LABEL,
}  # fmt: skip
_MODELS = {
    "models": LABEL, "probe": LABEL, "name": LABEL, "unit": LABEL, "is_headline": "boolean", "n_models": "models",
    "value": _OF, "null": _OF, "difference": _OF, "difference_low": _OF, "difference_high": _OF, "p": "probability",
    "smallest_p": "probability", "why": LABEL,
}  # fmt: skip
ALL = "all"
MIN_MODELS = 3
"""Models from which there is a p over them: of two, chance puts both on one side half of the time."""

_CURVES = {
    "group": LABEL, "probe": LABEL, "table": LABEL, "measure": LABEL, "unit": LABEL, "depth": "fraction", "value": _OF,
    "low": _OF, "high": _OF, "null": _OF, "n_runs": "runs",
}  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % bounds; NaN where there are none."""

    value: float
    low: float = math.nan
    high: float = math.nan


def numbers_table(compared: Compared) -> Table:
    """One row for each number of each run, compared with the first run."""
    return Table.from_rows(
        _number_rows(compared), _NUMBERS, "Every run compared with the first, with its own interval."
    )


def _number_rows(compared: Compared) -> Iterator[dict[str, object]]:
    first = compared.runs[0]
    for key in compared.shared:
        for run in compared.runs:
            s = run.scalars.get(key)
            if s is None:
                continue
            row = {"run": run.label, "group": run.group, "probe": key[0], "name": key[1], "unit": s.unit,
                   "is_headline": key in compared.headline, "p": math.nan if s.p is None else s.p,
                   "n": math.nan if s.n is None else float(s.n), **_null_of([s])}  # fmt: skip
            row |= dict(zip(("value", "low", "high"), (s.value, *(s.interval or (math.nan, math.nan))), strict=True))
            difference, verdict = Estimate(math.nan), ""
            if run is not first and key in first.scalars:
                moved = shift(*key, first.scalars[key], s)
                difference, verdict = Estimate(moved.difference, *(moved.interval or ())), moved.verdict
            yield {**row, **_bounds("difference", difference), "verdict": verdict}


def differences_table(compared: Compared) -> Table:
    """One row for each number of each group, compared with its reference: means over runs, or single runs."""
    caption = (
        "Means over the runs of a group with t intervals, or single runs with their own, compared with the reference."
    )
    return Table.from_rows(_difference_rows(compared), _DIFFERENCES, caption)


def _difference_rows(compared: Compared) -> Iterator[dict[str, object]]:
    groups = compared.groups
    for key in compared.shared:
        for group, against in compared.against.items():
            mine = _scalars(groups[group], key)
            if not mine:
                continue
            theirs = _scalars(groups[against], key) if against else []
            value = estimate(mine)
            difference, verdict, method = difference_of(theirs, mine)
            yield {
                "group": group, "against": against or "", "probe": key[0], "name": key[1], "unit": mine[0].unit,
                "is_headline": key in compared.headline, "n_runs": len(mine), **_null_of(mine),
                "value": value.value, "low": value.low, "high": value.high,
                **_bounds("difference", difference), "verdict": verdict, "method": method, "meaning": mine[0].meaning,
            }  # fmt: skip


def sets_table(compared: Compared) -> Table:
    """One row for each number of each model that was measured on several sets of prompts: its spread over them."""
    caption = (
        "One model on several sets of prompts: values in the order of the runs, mean, standard deviation and 95 % t "
        "interval over sets (a single run's interval is over prompts of one set). There is no p: sets are chosen, not "
        "sampled, and share the model."
    )
    return Table.from_rows(_set_rows(compared), _SETS, caption)


def _set_rows(compared: Compared) -> Iterator[dict[str, object]]:
    for key in compared.shared:
        for group, runs in compared.over_sets.items():
            mine = [run for run in runs if key in run.scalars]
            values = np.array([run.scalars[key].value for run in mine])
            if not len(values):
                continue
            reason = _no_interval(values)
            found = t_mean(values)
            low, high = (math.nan, math.nan) if reason else (found.low, found.high)
            yield {
                "group": group, "probe": key[0], "name": key[1], "unit": mine[0].scalars[key].unit,
                "is_headline": key in compared.headline, "n_sets": len(mine), "sets": "; ".join(r.label for r in mine),
                "values": ", ".join(short(value) for value in values), "mean": float(values.mean()),
                "deviation": float(values.std(ddof=1)) if len(values) > 1 else math.nan, "low": low, "high": high,
                "reason": reason,
            }  # fmt: skip


def _no_interval(values: np.ndarray) -> str:
    """Why so many sets have no interval over them; empty where they have one."""
    if not np.isfinite(values).all():
        return "a set without the number"
    if len(values) < 3:
        return f"{len(values)} sets are too few to estimate a spread"
    return "" if np.ptp(values) else "the same on every set"


def models_table(compared: Compared) -> Table:
    """One row for each number over all models, and over those of each group of repetitions, against its null.

    The unit is the model: runs of one are averaged. Empty with fewer than three models.
    """
    caption = (
        "Mean over models of value minus null (without a null: minus the value without an effect), its t interval, and "
        "p from all sign flips of the models' differences; smallest_p is the smallest possible."
    )
    return Table.from_rows(_model_rows(compared), _MODELS, caption)


def _model_rows(compared: Compared) -> Iterator[dict[str, object]]:
    sets = {ALL: list(compared.runs)} | (compared.groups if compared.is_pooled else {})
    for said, runs in sets.items():
        if n_models(runs) < MIN_MODELS:
            continue
        for key in compared.shared:
            pairs = _of_models(runs, key)
            if len(pairs):
                first = next(run.scalars[key] for run in runs if key in run.scalars)
                about = {"models": said, "probe": key[0], "name": key[1], "unit": first.unit}
                yield about | {"is_headline": key in compared.headline, **_over_models(pairs)}


def n_models(runs: Sequence[Run]) -> int:
    """How many different models the runs are of."""
    return len({run.model for run in runs})


def _of_models(runs: Sequence[Run], key: tuple[str, str]) -> np.ndarray:
    """Value and null of every model that has the number, `[model, 2]`."""
    found: dict[str, list[tuple[float, float]]] = {}
    for run in runs:
        s = run.scalars.get(key)
        if s is not None and np.isfinite(s.value):
            null = s.null.value if s.null is not None else s.reference
            found.setdefault(run.model, []).append((s.value, math.nan if null is None else null))
    return np.array([np.mean(pairs, axis=0) for pairs in found.values()]).reshape(-1, 2)


def _over_models(pairs: np.ndarray) -> dict[str, object]:
    known = pairs[np.isfinite(pairs).all(axis=1)]
    difference = known[:, 0] - known[:, 1]
    value, null = (float(x) for x in (known.mean(axis=0) if len(known) else (pairs[:, 0].mean(), math.nan)))
    found = {"n_models": len(known), "value": value, "null": null}
    if len(known) < MIN_MODELS:
        why = f"{len(known)} models have the number and a null: a p over models needs {MIN_MODELS}"
        return found | _bounds("difference", Estimate(math.nan)) | {"p": math.nan, "smallest_p": math.nan, "why": why}
    mean = t_mean(difference)
    return found | _bounds("difference", Estimate(mean.value, mean.low, mean.high)) | {
        "p": sign_flip_p(difference), "smallest_p": smallest_p(len(known)), "why": "",
    }  # fmt: skip


def estimate(repetitions: Sequence[Scalar]) -> Estimate:
    """The mean over runs with its 95 % t interval; of a single run its value and its own interval."""
    if len(repetitions) == 1:
        return Estimate(repetitions[0].value, *(repetitions[0].interval or ()))
    found = t_mean([s.value for s in repetitions])
    return Estimate(found.value, found.low, found.high)


def difference_of(theirs: Sequence[Scalar], mine: Sequence[Scalar]) -> tuple[Estimate, str, str]:
    """Mine minus theirs, the verdict (see `interp.records.diff`), and by which method; nothing without a reference."""
    if not theirs:
        return Estimate(math.nan), "", ""
    if len(mine) == len(theirs) == 1:
        moved = shift("", "", theirs[0], mine[0])
        return Estimate(moved.difference, *(moved.interval or ())), moved.verdict, MOVER if moved.interval else ""
    x, y = np.array([s.value for s in theirs]), np.array([s.value for s in mine])
    difference = float(y.mean() - x.mean())
    if min(len(x), len(y)) < 2 or not np.isfinite([*x, *y]).all():
        return Estimate(difference), "", "none: a group has one run, or a run without the number"
    spread = np.array([a.var(ddof=1) / len(a) for a in (x, y)])
    if not spread.any():
        return Estimate(difference), "differs" if difference else "same", "none: no spread between runs"
    freedom = spread.sum() ** 2 / (spread**2 / (np.array([len(x), len(y)]) - 1)).sum()
    half = t_quantile(freedom + 1) * math.sqrt(spread.sum())
    verdict = "moved" if abs(difference) > half else "within"
    return Estimate(difference, difference - half, difference + half), verdict, WELCH


def curves_table(compared: Compared) -> Table:
    """What two or more groups have by layer, along the fraction of their depth: means over the runs of a group."""
    by_group = {group: [_curves(run) for run in runs] for group, runs in compared.groups.items()}
    every = [curves for runs in by_group.values() for curves in runs]
    keys = [key for key in dict.fromkeys(k for curves in every for k in curves) if sum(key in c for c in every) > 1]
    rows = (
        {"group": group, "probe": key[0], "table": key[1], "measure": key[2], "unit": key[3], **point}
        for key in keys
        for group, runs in by_group.items()
        for point in _mean_curve([curves[key] for curves in runs if key in curves])
    )
    caption = "Depth 0 is the first layer (the embedding, where a table counts depths), 1 the last."
    return Table.from_rows(rows, _CURVES, caption)


_Curve = dict[str, np.ndarray]
_Key = tuple[str, str, str, str]


def _curves(run: Run) -> dict[_Key, _Curve]:
    """The columns of a run's tables that have an interval or a null and one row a layer."""
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
    """The rows of a table in parts of one row a layer: all, or those of each label; none where rows are finer."""
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


def _mean_curve(runs: Sequence[_Curve]) -> Iterator[dict[str, object]]:
    """The mean over runs at every depth that all have; a single run keeps its own intervals."""
    if not runs:
        return
    depths = [d for d in runs[0]["depth"] if all(d in run["depth"] for run in runs)]
    for depth in depths:
        at = [{part: float(column[run["depth"] == depth][0]) for part, column in run.items()} for run in runs]
        null = float(np.mean([point["null"] for point in at]))
        if len(at) == 1:
            value = Estimate(at[0]["value"], at[0]["low"], at[0]["high"])
        else:
            value = estimate([Scalar.of(p["value"], "", "-", "-") for p in at])
        yield {"depth": float(depth), "value": value.value, "low": value.low, "high": value.high, "null": null,
               "n_runs": len(at)}  # fmt: skip


def settings_table(compared: Compared) -> Table:
    """What is not alike in how the runs came about, a row for each thing and run."""
    varies = compared.what_varies()
    rows = (
        {"setting": path, "run": run.label, "value": cell(value) if not isinstance(value, str) else value}
        for path, values in varies.items()
        for run, value in zip(compared.runs, values, strict=True)
    )
    units = {"setting": LABEL, "run": LABEL, "value": LABEL}
    return Table.from_rows(rows, units, "Names and fingerprints of the models left aside.")


def _scalars(runs: Sequence[Run], key: tuple[str, str]) -> list[Scalar]:
    return [run.scalars[key] for run in runs if key in run.scalars]


def _null_of(repetitions: Sequence[Scalar]) -> dict[str, object]:
    """The null and its band, means over runs."""
    nulls = [(s.null.value, *s.null.band) for s in repetitions if s.null is not None]
    value, *band = np.mean(nulls, axis=0).tolist() if nulls else (math.nan,) * 3
    return number_columns("null", value, band)


def _bounds(name: str, found: Estimate) -> dict[str, object]:
    return number_columns(name, found.value, (found.low, found.high))
