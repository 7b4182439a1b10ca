"""The strip beside a number: value and interval against the band of its null, on one scale."""

import math
from dataclasses import dataclass

from interp.findings import Scalar

WIDTH, PAD = 160, 6
"""Width of the drawing and what is left free on either side, in SVG units."""


@dataclass(frozen=True)
class Strip:
    """Positions along the strip, in SVG units; pairs are (left, right), None if the scalar has none."""

    value: float
    zero: float
    interval: tuple[float, float] | None
    null: float | None
    band: tuple[float, float] | None
    truth: float | None = None


def strip(scalar: Scalar, truth: float = math.nan) -> Strip | None:
    """The strip of a scalar, including 0 (for fractions 0 to 1), or None if there is nothing to compare."""
    interval = scalar.interval if scalar.interval and _finite(*scalar.interval) else None
    null = scalar.null.value if scalar.null and _finite(scalar.null.value) else None
    band = scalar.null.band if scalar.null and _finite(*scalar.null.band) else None
    marks = [scalar.value, *(interval or ()), *(band or ())] + ([] if null is None else [null])
    marks += [truth] if _finite(truth) else []
    low, high = min(marks), max(marks)
    if not _finite(scalar.value) or low == high:
        return None

    low, high = min(low, 0.0), max(high, 1.0 if scalar.unit == "fraction" else 0.0)

    def place(x: float) -> float:
        return round(PAD + (x - low) / (high - low) * (WIDTH - 2 * PAD), 2)

    ends, bounds = interval and (place(interval[0]), place(interval[1])), band and (place(band[0]), place(band[1]))
    centre, exact = None if null is None else place(null), place(truth) if _finite(truth) else None
    return Strip(place(scalar.value), place(0.0), ends, centre, bounds, exact)


def _finite(*numbers: float) -> bool:
    return all(math.isfinite(x) for x in numbers)
