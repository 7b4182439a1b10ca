"""Which numbers moved between two runs by more than their intervals, and how the runs' settings differ: `interp diff`.

A number without an interval, underpowered, or of another target cannot be tested. The interval of one fitted axis is
too narrow, since another run fits another axis: the scatter of matched axes, its null, is added in quadrature.

The interval of a difference is recovered from both (MOVER): with d = y − x, x in (a, b) and y in (l, u),

    lower = d − √((y − l)² + (b − x)²),   upper = d + √((u − y)² + (x − a)²)

(Zou and Donner 2008, Statistics in Medicine 27, 1693-1702, eq. 10); symmetric half-widths add in quadrature. The runs
are taken as independent: on the same prompts they vary together, and the interval is mostly too wide.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from interp.findings import Scalar
from interp.options import BESIDE
from interp.records.record import RunRecord, open_run

Verdict = Literal["moved", "within", "differs", "same"]
"""`moved`: the interval of the difference excludes 0; `within`: it includes 0. Without a test: `differs` or, up to
rounding, `same`. Equal numbers are always the `same`."""

ROUNDING = 1e-6
"""Relative difference up to which numbers without intervals are the same: rounding of single precision."""
_ONE_AXIS = "axis and controls held fixed"  # in the method of an interval

_NOT_COMPARED = {
    "created", "timings", "path", "figures", "baselines", "core_seconds", "tensor_kinds",
    "notes", "examples", "caution", "n_at",
}  # fmt: skip
"""Times, paths, results of a tunnel's training, and sentences that follow from the rest."""


@dataclass(frozen=True)
class Shift:
    """One number in two runs, with the interval of second minus first; None if not tested or not `is_alike`."""

    probe: str
    name: str
    first: Scalar
    second: Scalar
    is_alike: bool = True

    @property
    def interval(self) -> tuple[float, float] | None:
        return difference_interval(self.first, self.second) if self.is_alike else None

    @property
    def difference(self) -> float:
        return self.second.value - self.first.value

    @property
    def verdict(self) -> Verdict:
        x, y = self.first.value, self.second.value
        if x == y or (math.isnan(x) and math.isnan(y)):
            return "same"
        if self.first.unit != self.second.unit:
            return "differs"
        if (interval := self.interval) is None:
            return "same" if math.isclose(x, y, rel_tol=ROUNDING) else "differs"
        return "within" if interval[0] <= 0 <= interval[1] else "moved"


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between two runs, by its path in the record; None if one lacks it."""

    path: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Diff:
    """Two runs compared: `shifts` of the numbers that both have, what only one has, and `settings` that differ.

    >>> difference = interp.diff("runs/first", "runs/second")
    >>> len(difference.shifts) > 0 and difference.only_first == ()
    True
    """

    shifts: tuple[Shift, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    settings: tuple[SettingDifference, ...]

    def __repr__(self) -> str:
        chance = " (by chance up to 1 in 20 of those tested)" * bool(self.moved)
        return (
            f"{len(self.moved)} of {len(self.shifts)} numbers moved{chance}; {len(self._of('within'))} are within "
            f"their intervals, {len(self._of('same'))} the same, {len(self.differing)} changed and cannot be tested"
        )

    @property
    def moved(self) -> tuple[Shift, ...]:
        """Numbers whose difference has a 95 % interval without 0."""
        return self._of("moved")

    @property
    def differing(self) -> tuple[Shift, ...]:
        """Numbers that changed but cannot be tested: no interval, a fitted axis, underpowered, other unit or target."""
        return self._of("differs")

    @property
    def is_exact(self) -> bool:
        """Whether every number is the same, and both runs have the same ones."""
        return not (self.only_first or self.only_second) and len(self._of("same")) == len(self.shifts)

    def _of(self, verdict: Verdict) -> tuple[Shift, ...]:
        return tuple(shift for shift in self.shifts if shift.verdict == verdict)


def diff(first: RunRecord | str | Path, second: RunRecord | str | Path) -> Diff:
    """Compare two runs number by number.

    Args:
        first: A record or its folder.
        second: Another one.

    Returns:
        Each number of both with a verdict: `moved` (the interval of the difference excludes 0), `within`, `same`, or
        `differs` (it cannot be tested); and the versions, settings, prompts and weights that differ.

    Raises:
        RecordError: A run cannot be read.

    Examples:
        >>> difference = interp.diff("runs/first", "runs/second")
        >>> all(shift.first.value == shift.second.value for shift in difference.shifts)
        True
    """
    one, two = (run if isinstance(run, RunRecord) else open_run(run) for run in (first, second))
    left, right = scalars_of(one), scalars_of(two)
    here, there = flat_settings(one), flat_settings(two)
    return Diff(
        shifts=tuple(
            Shift(*key, left[key], right[key], not is_of_other_target(one, two, *key)) for key in left if key in right
        ),
        only_first=tuple(".".join(key) for key in left if key not in right),
        only_second=tuple(".".join(key) for key in right if key not in left),
        settings=tuple(
            SettingDifference(path, here.get(path), there.get(path))
            for path in dict.fromkeys([*here, *there])
            if here.get(path) != there.get(path)
        ),
    )


def scalars_of(record: RunRecord) -> dict[tuple[str, str], Scalar]:
    """Every number of a record by probe and name."""
    return {(probe, name): s for probe, found in record.findings.items() for name, s in found.scalars.items()}


def is_of_other_target(one: RunRecord, two: RunRecord, probe: str, name: str) -> bool:
    """Whether target and meaning of a number differ between the runs."""
    targets = ((record.spec.get("probes") or {}).get(probe, {}).get("target") for record in (one, two))
    meanings = (record.findings[probe][name].meaning for record in (one, two))
    return len({*targets}) > 1 and len({*meanings}) > 1


def difference_interval(first: Scalar, second: Scalar) -> tuple[float, float] | None:
    """The 95 % interval of `second` minus `first`, recovered from theirs.

    None where units differ, or a side is not finite, underpowered or of one fitted axis without a null.
    """
    x, (a, b) = first.value, _interval(first)
    y, (low, high) = second.value, _interval(second)
    if first.unit != second.unit or not all(map(math.isfinite, (x, a, b, y, low, high))):
        return None
    # An interval on another scale may leave its own value outside by a rounding error: a side is never negative.
    down = math.hypot(max(y - low, 0.0), max(b - x, 0.0))
    up = math.hypot(max(high - y, 0.0), max(x - a, 0.0))
    return y - x - down, y - x + up


def _interval(s: Scalar) -> tuple[float, float]:
    """Its interval, for one fitted axis with the scatter of matched axes; NaN if it cannot be tested."""
    low, high = (math.nan, math.nan) if s.interval is None or s.underpowered else s.interval
    if _ONE_AXIS not in s.interval_method:
        return low, high
    null, (least, most) = (s.null.value, s.null.band) if s.null else (math.nan, (math.nan, math.nan))
    return s.value - math.hypot(s.value - low, null - least), s.value + math.hypot(high - s.value, most - null)


def flat_settings(record: RunRecord) -> dict[str, Any]:
    """The settings of a run by path (`environment.packages.torch`, `prompts.hash` ...), with versions and machine."""
    asked = {name: value for name, value in record.spec.items() if name not in BESIDE}
    parts = {"spec": asked, "model": record.model, "prompts": record.prompts, "environment": record.environment}
    return {path: value for name, part in parts.items() for path, value in _flat(name, part)}


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            if key not in _NOT_COMPARED:
                yield from _flat(f"{path}.{key}", part)
    else:
        yield path, list(value) if isinstance(value, tuple) else value
