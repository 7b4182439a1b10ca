"""The lines of the table: measurements compared with their figures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.meters import MIB
from benchmarks.worker import Measured

TOLERANCE = 0.15
"""How far a measurement may exceed its figure before it fails."""


@dataclass(frozen=True)
class Line:
    """One number of the table. `figure` is its upper bound, or lower bound if `is_least`.

    `spread` is the range of the repeats. If `value` is None, `note` says why.
    """

    work: str
    what: str
    quantity: str
    value: float | None
    unit: str
    spread: tuple[float, float] | None = None
    figure: float | None = None
    is_least: bool = False
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Line":
        """From JSON, which knows no tuples."""
        spread = fields["spread"] and tuple(fields["spread"])
        return cls(**{name: each for name, each in fields.items() if name != "holds"} | {"spread": spread})

    @property
    def holds(self) -> bool | None:
        """Whether the figure is met within the tolerance; None without a figure or a measurement."""
        if self.figure is None or self.value is None:
            return None
        if self.is_least:
            return self.value * (1 + TOLERANCE) >= self.figure
        return self.value <= self.figure * (1 + TOLERANCE)

    @property
    def verdict(self) -> str:
        if self.holds is None or self.value is None or self.figure is None:
            return self.note
        is_met = self.value >= self.figure if self.is_least else self.value <= self.figure
        return "met" if is_met else ("within 15 %" if self.holds else "FAILED")


def ratios(measured: Measured) -> list[float]:
    return [a / b for a, b in zip(measured.seconds, measured.floor_seconds, strict=True)]


def lines_of(work: str, label: str, measured: Measured, limits: Mapping[str, float]) -> list[Line]:
    """Times the floor (median and range over the batches) and MiB over the floor's peak."""
    found = ratios(measured)
    over = (measured.bytes - measured.floor_bytes) / MIB
    return [
        Line(work, label, "time", median(found), "x floor", (min(found), max(found)), limits.get("time")),
        Line(work, label, "memory", over, "MiB over floor", None, limits.get("memory_mib")),
    ]


def floor_line(work: str, measured: Sequence[Measured], n_tokens: int) -> Line:
    """The bare pass, over all processes that ran it."""
    seconds = [s for m in measured for s in m.floor_seconds]
    memory = median(m.floor_bytes / MIB for m in measured)
    return Line(
        work, "plain forward pass (the floor)", "time", median(seconds), f"{measured[0].unit} a batch",
        (min(seconds), max(seconds)), note=f"{n_tokens} tokens a batch; {memory:.0f} MiB over the loaded model",
    )  # fmt: skip


def comparison(
    work: str, labels: tuple[str, str], ours: Measured | None, other: Measured | None, limits: Mapping[str, float]
) -> list[Line]:
    """How many times faster ours is, each relative to its own floor, and its memory relative to the other's."""
    what = f"{labels[0]} beside {labels[1]}"
    if ours is None or other is None:
        return [Line(work, what, "comparison", None, "", note="not measured")]
    faster = median(ratios(other)) / median(ratios(ours))
    return [
        Line(work, what, "speed", faster, "times", None, limits.get("faster"), is_least=True),
        Line(work, what, "memory", ours.bytes / other.bytes, "of the other's", None, limits.get("memory_share")),
    ]


def growth(
    works: tuple[str, str], label: str, short: Measured, long: Measured, tokens: tuple[int, int], most: float
) -> Line:
    """Memory per token of a long batch relative to a short one: 1 is linear."""
    each = (long.bytes / tokens[1]) / (short.bytes / tokens[0])
    return Line(works[1], f"{label} beside {works[0]}", "memory a token", each, "times", None, most)


def use_lines(work: str, label: str, measured: Measured, n_tokens: int) -> list[Line]:
    """Tokens per second, and the share of the device's limit."""
    if measured.least_seconds is None:
        return []
    seconds = median(measured.seconds)
    return [
        Line(work, label, "speed", n_tokens / seconds, "tokens/s"),
        Line(work, label, "use", measured.least_seconds / seconds, "of the limit"),
    ]


def missing(work: str, label: str, why: str) -> Line:
    return Line(work, label, "time", None, "", note=why)


def failures(lines: Sequence[Line]) -> list[Line]:
    """Lines that miss their figure or lack a measurement."""
    return [line for line in lines if line.holds is False or (line.figure is not None and line.value is None)]


def table(lines: Sequence[Line]) -> str:
    """The table as Markdown."""
    head = "| Work | What | Measured | Range | Figure | |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(_row(line) for line in lines)])


def _row(line: Line) -> str:
    value = "not measured" if line.value is None else f"{_number(line.value)} {line.unit}"
    spread = "" if line.spread is None else f"{_number(line.spread[0])} to {_number(line.spread[1])}"
    sign = "at least " if line.is_least else ""
    figure = "" if line.figure is None else f"{sign}{_number(line.figure)}"
    return f"| {line.work} | {line.what} | {value} | {spread} | {figure} | {line.verdict} |"


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"
