"""The smallest effect that a run could have detected, from the nulls and intervals it has computed.

A value is significant at the 5 % level, two-sided, if it leaves the null's 95 % band (b₀, b₁). A true value θ with
standard error σ leaves the band upwards with probability Φ((θ − b₁)/σ), so it is found 80 times in 100 if

    θ − null = (b₁ − null) + z σ,   z = Φ⁻¹(0.80) = 0.8416

and below the null likewise with (null − b₀). With a symmetric band the first term is 1.96 σ₀: the basic equation of
sample sizes, z_α σ₀ + z_β σ₁ (Lachin 1981, Controlled Clinical Trials 2, 93-113). A number without a p is significant
if its whole 95 % interval leaves the band, which takes 1.96 σ more. σ is the half-width of the interval over 1.96.

This is not "observed power": the measured value enters only through its error.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Literal

from interp.errors import InterpError
from interp.findings import Scalar
from interp.probe import Question
from interp.records.record import RunRecord, open_run
from interp.registry import entries, load_entry
from interp.table import LABEL, Table

POWER = 0.80
LEVEL = 0.05
_Z_LEVEL = NormalDist().inv_cdf(1 - LEVEL / 2)
_Z_POWER = NormalDist().inv_cdf(POWER)
_NONE = (math.nan, math.nan)

ONE_SIDE = "the question is whether it lies {} its null"
CORRECTED = "p is corrected over {over}: it asks for more than the band, so for a larger effect"
_UNITS = {
    "probe": LABEL, "name": LABEL, "unit": LABEL, "is_headline": "boolean", "n": "1", "value": "of the number",
    "null": "of the number", "effect": "of the number", "smallest_above": "of the number",
    "smallest_below": "of the number", "reason": LABEL,
}  # fmt: skip


def detectable(scalar: Scalar) -> tuple[float, float]:
    """The smallest effects found with 80 % power above and below the null, as distances from it, or NaN."""
    (low, high), (b0, b1) = scalar.interval or _NONE, scalar.null.band if scalar.null else _NONE
    z = _Z_POWER + (_Z_LEVEL if scalar.p is None else 0.0)
    centre, beyond = scalar.null.value if scalar.null else math.nan, z * (high - low) / (2 * _Z_LEVEL)
    found = b1 - centre + beyond, centre - b0 + beyond
    return found if all(map(math.isfinite, found)) and any(found) else _NONE


def power(run: RunRecord | str | Path) -> Table:
    """Compute the smallest effect that each number of a run could detect; headlines come first.

    Args:
        run: A record or its folder.

    Returns:
        A table in the unit of each number: `effect` is the measured distance from the null, `smallest_above` and
        `smallest_below` are the distances found with 80 % power at the 5 % level. What cannot be computed, and a side
        that a one-sided p does not test, is NaN, with a `reason`.

    Raises:
        RecordError: The run cannot be read.

    Examples:
        >>> interp.power("runs/first").to_frame()["name"].is_unique
        True
    """
    record = run if isinstance(run, RunRecord) else open_run(run)
    caption = (
        f"Distance from the null that is detected {POWER:.0%} of the time at the {LEVEL:.0%} level, two-sided, at this "
        "n: to the edge of the null's band, and 0.84 standard errors beyond (2.80 without a p)."
    )
    return Table.from_rows(_rows(record), _UNITS, caption)


def _rows(record: RunRecord) -> Iterator[dict[str, object]]:
    for probe, found in record.findings.items():
        for name in [*found.headline, *(name for name in found.scalars if name not in found.headline)]:
            s = found.scalars[name]
            (above, below), null = detectable(s), s.null.value if s.null else math.nan
            asks = "either" if s.p is None or math.isnan(above) else _asked_side(probe, name)
            why = _reason(s) if math.isnan(above) else "; ".join(_cautions(s, asks))
            above, below = above if asks != "below" else math.nan, below if asks != "above" else math.nan
            yield {
                "probe": probe, "name": name, "unit": s.unit, "is_headline": name in found.headline,
                "n": math.nan if s.n is None else float(s.n), "value": s.value, "null": null, "effect": s.value - null,
                "smallest_above": above, "smallest_below": below, "reason": why,
            }  # fmt: skip


def _cautions(s: Scalar, asks: str) -> Iterator[str]:
    if asks != "either":
        yield ONE_SIDE.format(asks)
    if s.underpowered:
        yield f"{s.weakness}: no effect is significant at this n, however large"
    if s.p_over:
        yield CORRECTED.format(over=s.p_over)


def _asked_side(probe: str, name: str) -> Literal["above", "below", "either"]:
    """The side of the null that p tests, as the probe declares it; names may have slots."""
    cls = class_of(probe)
    declared = cls.quantities if cls else {}
    matching = [of for n, of in declared.items() if re.fullmatch(re.sub(r"{\w+}", ".+", n), name)]
    asks = declared[name].asks if name in declared else matching[0].asks if matching else "either"
    return "either" if asks == "nothing" else asks


def class_of(probe: str) -> type[Question] | None:
    """The installed probe or study; None if there is none of this name."""
    try:
        return next((load_entry(kind, probe) for kind in ("probe", "study") if probe in entries(kind)), None)
    except InterpError:  # the page says so beside the probe's numbers
        return None


def _reason(s: Scalar) -> str:
    if s.null is None:
        return f"no null: {s.null_reason}"
    if s.interval is None:
        return f"no interval: {s.interval_reason}"
    return "its null or its interval is not finite, or both are a single value"
