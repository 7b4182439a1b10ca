"""The strip beside a headline number: its value and interval against the band of its null, to one scale."""

import math
from dataclasses import dataclass

from interp.findings import Scalar
from interp.words import short

WIDTH, PAD = 320, 14
"""Width of the drawing and what is left free on either side, in SVG units."""

_DIGIT = 8
"""Room that a character of a tick takes, in SVG units."""


@dataclass(frozen=True)
class Tick:
    """A round number and where it stands, written with as many digits as tell it from its neighbours."""

    x: float
    label: float
    text: str


@dataclass(frozen=True)
class Strip:
    """Positions along the strip, in SVG units; pairs are (left, right), None where the scalar has no such thing."""

    value: float
    interval: tuple[float, float] | None
    null: float | None
    band: tuple[float, float] | None
    ticks: tuple[Tick, ...]
    truth: float | None = None


def strip(scalar: Scalar, truth: float = math.nan) -> Strip | None:
    """The strip of a scalar, with the truth where it is known; None where nothing finite stands beside its value."""
    interval = scalar.interval if scalar.interval and _finite(*scalar.interval) else None
    null = scalar.null.value if scalar.null and _finite(scalar.null.value) else None
    band = scalar.null.band if scalar.null and _finite(*scalar.null.band) else None
    marks = [scalar.value, *(interval or ()), *(band or ())] + ([] if null is None else [null])
    marks += [truth] if _finite(truth) else []
    low, high = min(marks), max(marks)
    if not _finite(scalar.value) or low == high:
        return None

    def place(x: float) -> float:
        return round(PAD + (x - low) / (high - low) * (WIDTH - 2 * PAD), 2)

    return Strip(
        value=place(scalar.value),
        interval=interval and (place(interval[0]), place(interval[1])),
        null=None if null is None else place(null),
        band=band and (place(band[0]), place(band[1])),
        truth=place(truth) if _finite(truth) else None,
        ticks=_apart([Tick(place(x), x, text) for x, text in _written(round_numbers(low, high))]),
    )


def _apart(ticks: list[Tick]) -> tuple[Tick, ...]:
    """As many of them, evenly, as can be written side by side."""
    wide = _DIGIT * max((len(tick.text) + 1 for tick in ticks), default=1)
    step = next(n for n in range(1, len(ticks) + 2) if n >= len(ticks) or ticks[n].x - ticks[0].x >= wide)
    return tuple(ticks[::step])


def _written(numbers: list[float]) -> list[tuple[float, str]]:
    texts = ([short(x, digits) for x in numbers] for digits in range(3, 13))
    return list(
        zip(numbers, next((t for t in texts if len(set(t)) == len(t)), [short(x) for x in numbers]), strict=True)
    )


def round_numbers(low: float, high: float) -> list[float]:
    """Two to seven multiples of 1, 2 or 5 times a power of ten between `low` and `high`."""
    rough = (high - low) / 2.5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (5, 2, 1) if m * power <= rough)
    # A hair more on either side: 0.6 / 0.2 falls short of 3.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1)]


def _finite(*numbers: float) -> bool:
    return all(math.isfinite(x) for x in numbers)
