"""The steps at which curves settle, and the indices that compare the frame with the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interp.statistics.estimates import Estimates
from interp.statistics.units import Units

from .training import FRAME, VALUE, Training
from .training_curves import Curve, interval_of, settled, value_at

_MOST_UNDEFINED = 0.05
_OTHERS = {"_kl": "kl", "_output": "output", "_values": VALUE}
"""Other curves that the frame is compared with, by the ending of the index."""

_NOWHERE = {"where": "nowhere.", "what": "undefined"}


def undefined_index(reason: str, unit: str) -> dict[str, Estimates]:
    """The headline where there is nothing to compare."""
    return {"dissociation_index": Estimates.undefined(reason, about={"n": 0, "n_unit": unit}, words=_NOWHERE)}


def indices(training: Training, epsilon: float) -> dict[str, Estimates]:
    """Indices, steps, and the distance of the frame when the error has settled."""
    steps, units, curves = training.steps, training.units, training.curves
    if FRAME not in curves:
        return undefined_index("no attention rows were kept of these prompts", units.name)
    frame, error = curves[FRAME], curves[training.error]

    def against(other: Curve) -> Estimates:
        found, is_interpolated = _index(steps, {"frame": frame, "the other": other}, epsilon)
        return _marked(units.about(found), is_interpolated)

    left = value_at(steps, frame.distance, settled(steps, error.distance, epsilon))
    is_left = _bootstrapped(left) if np.isfinite(left[0]) else Estimates.undefined("the error does not settle")
    found = {"dissociation_index": against(error), "frame_left": units.about(is_left)}
    found |= {f"dissociation_index{end}": against(curves[name]) for end, name in _OTHERS.items() if name in curves}
    followed = {FRAME: frame, "error": error, VALUE: curves.get(VALUE)}
    found |= {f"{name}_step": _step(steps, curve, epsilon, units) for name, curve in followed.items() if curve}
    return found


def _why_unsettled(steps: np.ndarray, curve: Curve, epsilon: float) -> str:
    if curve.distance[0, 0] == 0:
        return f"{curve.what} begins where it ends: there is nothing to approach"
    return f"{curve.what} is not within {epsilon:g} of its first distance at the last checkpoint (step {steps[-1]})"


def _index(steps: np.ndarray, curves: Mapping[str, Curve], epsilon: float) -> tuple[Estimates, bool]:
    """The ratio of the steps at which two curves settle, and whether it depends on interpolation alone.

    It does where both settle between the same two checkpoints, or right before the end.
    """
    between = []
    for curve in curves.values():
        settles = interval_of(steps, curve.distance[0], epsilon)
        if settles is None:
            return Estimates.undefined(_why_unsettled(steps, curve, epsilon), words=_NOWHERE), False
        between.append(settles)
    first, second = (settled(steps, curve.distance, epsilon) for curve in curves.values())
    found = _bootstrapped(first / second).with_words(where=_where(between, *curves))
    return found, between[0] == between[1] or all(until == int(steps[-1]) for _, until in between)


def _marked(found: Estimates, is_underpowered: bool) -> Estimates:
    return replace(found, about={**found.about, "underpowered": found.about["underpowered"] or is_underpowered})


def _where(between: Sequence[tuple[int, int]], first: str, second: str) -> str:
    (a, b), (c, d) = between
    most = f"and {b / c:.3g}" if c else "and anything"
    where = f"{first} between the steps {a} and {b}, {second} between {c} and {d}: without interpolation, the index is "
    where += f"between {a / d:.3g} {most}."
    return where + (" The same two checkpoints: the order rests on interpolation." if (a, b) == (c, d) else "")


def _step(steps: np.ndarray, curve: Curve, epsilon: float, units: Units) -> Estimates:
    between = interval_of(steps, curve.distance[0], epsilon)
    if between is None:
        why = Estimates.undefined(_why_unsettled(steps, curve, epsilon))
        return units.about(why, what=curve.what, where="nowhere")
    found = _bootstrapped(settled(steps, curve.distance, epsilon))
    where = f"between the checkpoints {between[0]} and {between[1]}"
    return _marked(units.about(found, what=curve.what, where=where), between[1] == int(steps[-1]))


def _bootstrapped(values: np.ndarray) -> Estimates:
    """The first value with the central 95 % of its resamples, the others.

    No interval where more than a few are undefined, or all are one number.
    """
    value, resampled = values[:1], values[1:]
    known = resampled[np.isfinite(resampled)]
    if len(known) < (1 - _MOST_UNDEFINED) * len(resampled) or len(known) == 0 or np.ptp(known) == 0:
        return Estimates(value)
    return Estimates.resampled(value, known[:, None])
