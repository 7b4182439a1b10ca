"""The numbers of the dynamics probe: what settles when, and the frame against everything else."""

import numpy as np

from interp.findings import Interval, Scalar
from interp.statistics.estimate import percentile_interval
from interp.statistics.units import Units

from .courses import Compared, Course, compare, interval_of, resampled, settled
from .training import FRAME, VALUES, Training

_MOST_UNDEFINED = 0.05
_DESCRIPTION = "a description: how far patterns moved says nothing of what they do, which exchange_lead asks"
MEANINGS = {
    "dissociation_index": "Step at which attention has settled over the step at which the error has; below 1 the frame "
    "of attention was there before precision.",
    "dissociation_index_kl": "The same against KL(exact posterior || prediction).",
    "dissociation_index_output": "The same against the total variation of the prediction to the end's, which is on the "
    "scale of the frame itself: errors in bits fall as its square and seem earlier.",
    "dissociation_index_values": "The same against the distance of the values from the end's: below 1 values still "
    "move when attention has settled.",
    "frame_step": "Step from which on attention stays near the end's",
    "error_step": "Step from which on the error stays near the end's",
    "values_step": "Step from which on the values stay near the end's",
    "frame_left": "Total variation to the end's attention, relative to the first checkpoint, at the step at which the "
    "error has settled: what way attention still has to go then.",
    "weights_index": "Step at which W_QK has come near its end over the step at which W_V has, from the weights alone.",
}


def undefined_scalars(reason: str, unit: str) -> dict[str, Scalar]:
    """The headline where nothing can be compared."""
    meaning = MEANINGS["dissociation_index"]
    return {"dissociation_index": Scalar.undefined(reason, underpowered=True, n=0, n_unit=unit, meaning=meaning)}


def _undefined(name: str, reason: str, units: Units, unit: str = "1") -> Scalar:
    about = units.counted | {"underpowered": True, "meaning": MEANINGS[name]}
    return Scalar.undefined(reason, unit, **about)


def course_scalars(training: Training, epsilon: float) -> dict[str, Scalar]:
    """Indices, steps, and what of the frame is left when the error has settled."""
    frame, courses = training.frame, training.courses()
    if frame is None:
        reason = "no attention rows were kept of these prompts"
        return undefined_scalars(reason, training.units.name) | _of_weights(training, epsilon)
    others = {
        "dissociation_index": training.error, "dissociation_index_kl": "kl",
        "dissociation_index_output": "output", "dissociation_index_values": VALUES,
    }  # fmt: skip
    made: dict[str, Scalar] = {}
    for name, other in others.items():
        if other not in courses or (name != "dissociation_index" and other == training.error):
            continue
        compared = compare(training.steps, frame, courses[other], epsilon, training.units.weights)
        made[name] = _index(name, compared, training, frame, courses[other], epsilon)
        if other == training.error:
            made["frame_left"] = _left(compared, training.units)
    followed = {FRAME: frame, "error": courses[training.error], VALUES: courses.get(VALUES)}
    made |= {f"{name}_step": _step(f"{name}_step", c, training, epsilon) for name, c in followed.items() if c}
    return made | _of_weights(training, epsilon)


def why_unsettled(steps: np.ndarray, curve: np.ndarray, epsilon: float, what: str) -> str:
    """Why a course has no step at which it settles."""
    if curve[0] == 0:
        return f"{what} begins where it ends: there is nothing to approach"
    return f"{what} is not within {epsilon:g} of its first distance at the last checkpoint (step {steps[-1]})"


def _index(name: str, compared: Compared, training: Training, frame: Course, other: Course, epsilon: float) -> Scalar:
    steps, about = training.steps, training.units.counted
    means = [course.distance.mean(axis=0) for course in (frame, other)]
    between = [interval_of(steps, curve, epsilon) for curve in means]
    for curve, found, course in zip(means, between, (frame, other), strict=True):
        if found is None:
            return _undefined(name, why_unsettled(steps, curve, epsilon, course.what), training.units)
    at_the_end = all(found is not None and found[1] == int(steps[-1]) for found in between)
    about["underpowered"] |= between[0] == between[1] or at_the_end
    return Scalar.of(
        compared.index, "1", _interval(compared.index, compared.resampled, training.units), _DESCRIPTION,
        meaning=MEANINGS[name] + _where(between), **about,
    )  # fmt: skip


def _where(between: "list[tuple[int, int] | None]") -> str:
    (a, b), (c, d) = [found or (0, 0) for found in between]
    most = f"and {b / c:.3g}" if c else "and anything"
    said = f" Frame between the steps {a} and {b}, the other between {c} and {d}: without interpolation, the index is "
    said += f"between {a / d:.3g} {most}."
    return said + (" The same two checkpoints: the order rests on interpolation." if (a, b) == (c, d) else "")


def _left(compared: Compared, units: Units) -> Scalar:
    if np.isnan(compared.left):
        return _undefined("frame_left", "the error does not settle", units)
    return Scalar.of(
        compared.left,
        "fraction",
        _interval(compared.left, compared.left_resampled, units),
        _DESCRIPTION,
        meaning=MEANINGS["frame_left"],
        **units.counted,
    )


def _step(name: str, course: Course, training: Training, epsilon: float) -> Scalar:
    steps, about = training.steps, training.units.counted
    curve = course.distance.mean(axis=0)
    value, between = float(settled(steps, curve, epsilon)), interval_of(steps, curve, epsilon)
    if between is None:
        return _undefined(name, why_unsettled(steps, curve, epsilon, course.what), training.units, "steps")
    replicates = settled(steps, resampled(course, training.units.weights), epsilon)
    about["underpowered"] |= between[1] == int(steps[-1])
    return Scalar.of(
        value, "steps", _interval(value, replicates, training.units), "a time, not an effect: the index compares it",
        meaning=f"{MEANINGS[name]} ({course.what}). Between the checkpoints {between[0]} and {between[1]}.", **about,
    )  # fmt: skip


def _of_weights(training: Training, epsilon: float) -> dict[str, Scalar]:
    """The index of W_QK against W_V: distances from the end, all layers together."""
    steps = training.steps
    curves = {matrix: np.sqrt(np.square(training.of_weights[f"away.{matrix}"]).sum(axis=1)) for matrix in ("qk", "v")}
    at = {matrix: float(settled(steps, curve, epsilon)) for matrix, curve in curves.items()}
    n_heads = training.of_weights["drift"][0].size
    names = {"qk": "the distance of W_QK from its end", "v": "the distance of W_V from its end"}
    about = {"n": n_heads, "n_unit": "head"}
    for matrix, step in at.items():
        if np.isnan(step):
            reason, meaning = why_unsettled(steps, curves[matrix], epsilon, names[matrix]), MEANINGS["weights_index"]
            return {"weights_index": Scalar.undefined(reason, underpowered=True, meaning=meaning, **about)}
    between = [interval_of(steps, curve, epsilon) for curve in curves.values()]
    late = all(found is not None and found[1] == int(steps[-1]) for found in between)
    return {
        "weights_index": Scalar.of(
            at["qk"] / at["v"], "1", "weights only: nothing to resample",
            "weights only: 1 is where both come near together, and a product of two comes later than each",
            underpowered=late or between[0] == between[1],
            meaning=MEANINGS["weights_index"] + _where(between).replace("Frame", "W_QK").replace("the other", "W_V"),
            **about,
        )
    }  # fmt: skip


def _interval(value: float, replicates: np.ndarray, units: Units) -> Interval | str:
    """The central 95 % of the replicates; none where more than a few are undefined, or all are one number."""
    known = replicates[np.isfinite(replicates)]
    few = len(known) < (1 - _MOST_UNDEFINED) * len(replicates) or len(known) == 0
    bounds = None if few or np.ptp(known) == 0 else percentile_interval(value, known)
    method = f"percentile bootstrap over {units.drawn}s, checkpoints held fixed"
    return Interval.of(bounds, method, f"resamples of the {units.name}s do not settle, or do not differ")
