"""When each course of a training has settled, and the frame against everything else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from interp.statistics.estimates import Estimates
from interp.statistics.units import Units

from .training import FRAME, VALUES, Training
from .training_curves import Curve, compare, interval_of, resampled, settled

_MOST_UNDEFINED = 0.05
_OTHERS = {"_kl": "kl", "_output": "output", "_values": VALUES}
"""What else the frame is compared with, by the ending of the index."""

_NOWHERE = {"where": "nowhere.", "what": "undefined"}


def undefined_index(reason: str, unit: str) -> dict[str, Estimates]:
    """The headline where nothing can be compared."""
    return {"dissociation_index": Estimates.undefined(reason, about={"n": 0, "n_unit": unit}, words=_NOWHERE)}


def indices(training: Training, epsilon: float) -> dict[str, Estimates]:
    """Indices, steps, and what of the frame is left when the error has settled."""
    frame, courses = training.frame, training.courses()
    if frame is None:
        reason = "no attention rows were kept of these prompts"
        return undefined_index(reason, training.units.name) | _of_weights(training, epsilon)
    found = {}
    others = {"": training.error, **{e: name for e, name in _OTHERS.items() if name in courses}}
    for ending, other in others.items():
        if ending and other == training.error:
            continue
        index, left = _compared(training, frame, courses[other], epsilon)
        found[f"dissociation_index{ending}"] = index
        found |= {} if ending else {"frame_left": left}
    followed = {FRAME: frame, "error": courses[training.error], VALUES: courses.get(VALUES)}
    found |= {f"{name}_step": _step(course, training, epsilon) for name, course in followed.items() if course}
    return found | _of_weights(training, epsilon)


def _why_unsettled(steps: np.ndarray, curve: np.ndarray, epsilon: float, what: str) -> str:
    if curve[0] == 0:
        return f"{what} begins where it ends: there is nothing to approach"
    return f"{what} is not within {epsilon:g} of its first distance at the last checkpoint (step {steps[-1]})"


def _compared(training: Training, frame: Curve, other: Curve, epsilon: float) -> tuple[Estimates, Estimates]:
    """The index, and what is left of the frame where the other has settled."""
    steps, units = training.steps, training.units
    compared = compare(steps, frame, other, epsilon, units.weights)
    left = Estimates.undefined("the error does not settle", about=units.counted)
    if not np.isnan(compared.left):
        left = _bootstrapped(compared.left, compared.left_resampled, units)
    means = [course.distance.mean(axis=0) for course in (frame, other)]
    unsettled = [
        _why_unsettled(steps, curve, epsilon, course.what)
        for curve, course in zip(means, (frame, other), strict=True) if interval_of(steps, curve, epsilon) is None
    ]  # fmt: skip
    if unsettled:
        return Estimates.undefined(unsettled[0], about=units.counted, words=_NOWHERE), left
    between = [interval_of(steps, curve, epsilon) or (0, 0) for curve in means]
    index = _bootstrapped(compared.index, compared.resampled, units, where=_where(between, "frame", "the other"))
    return _marked(index, _is_interpolated(steps, between)), left


def _is_interpolated(steps: np.ndarray, between: Sequence[tuple[int, int]]) -> bool:
    """Whether both settle between the same two checkpoints, or right before the end: then nothing else decides."""
    return between[0] == between[1] or all(until == int(steps[-1]) for _, until in between)


def _marked(found: Estimates, is_underpowered: bool) -> Estimates:
    return replace(found, about={**found.about, "underpowered": found.about["underpowered"] or is_underpowered})


def _where(between: Sequence[tuple[int, int]], first: str, second: str) -> str:
    (a, b), (c, d) = between
    most = f"and {b / c:.3g}" if c else "and anything"
    said = f"{first} between the steps {a} and {b}, {second} between {c} and {d}: without interpolation, the index is "
    said += f"between {a / d:.3g} {most}."
    return said + (" The same two checkpoints: the order rests on interpolation." if (a, b) == (c, d) else "")


def _step(course: Curve, training: Training, epsilon: float) -> Estimates:
    steps, curve = training.steps, course.distance.mean(axis=0)
    between, words = interval_of(steps, curve, epsilon), {"what": course.what}
    if between is None:
        why = _why_unsettled(steps, curve, epsilon, course.what)
        return Estimates.undefined(why, about=training.units.counted, words=words | {"where": "nowhere"})
    replicates = settled(steps, resampled(course, training.units.weights), epsilon)
    words["where"] = f"between the checkpoints {between[0]} and {between[1]}"
    found = _bootstrapped(float(settled(steps, curve, epsilon)), replicates, training.units, **words)
    return _marked(found, between[1] == int(steps[-1]))


def _of_weights(training: Training, epsilon: float) -> dict[str, Estimates]:
    """The index of W_QK against W_V: distances from the end, all layers together."""
    steps, names = training.steps, {"qk": "W_QK", "v": "W_V"}
    curves = {name: np.sqrt(np.square(training.read[f"away.{m}"]).sum(axis=1)) for m, name in names.items()}
    about = {"n": training.read["drift"][0].size, "n_unit": "head"}
    for name, curve in curves.items():
        if np.isnan(settled(steps, curve, epsilon)):
            why = _why_unsettled(steps, curve, epsilon, f"the distance of {name} from its end")
            return {"weights_index": Estimates.undefined(why, about=about, words=_NOWHERE)}
    between = [interval_of(steps, curve, epsilon) or (0, 0) for curve in curves.values()]
    first, second = (float(settled(steps, curve, epsilon)) for curve in curves.values())
    about["underpowered"] = _is_interpolated(steps, between)
    return {
        "weights_index": Estimates(np.array([first / second]), about=about, words={"where": _where(between, *curves)})
    }


def _bootstrapped(value: float, replicates: np.ndarray, units: Units, **words: Any) -> Estimates:
    """Central 95 % of the replicates; no interval where more than a few are undefined, or all are one number."""
    known = replicates[np.isfinite(replicates)]
    told = {"unit": units.name, "drawn": units.drawn, **words}
    if len(known) < (1 - _MOST_UNDEFINED) * len(replicates) or len(known) == 0 or np.ptp(known) == 0:
        return Estimates(np.array([value]), about=units.counted, words=told)
    return Estimates.resampled(np.array([value]), known[:, None], about=units.counted, words=told)
