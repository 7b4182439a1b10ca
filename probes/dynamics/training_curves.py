"""Training curves: when a distance from the end has settled, and which of two settles first.

A curve is a mean over prompts at every checkpoint, measured from its value at the end of the training: d(t) =
c(t) − c(end). It has settled from the step on after which |d| stays within ε of |d| at the first checkpoint (the last
crossing counts). Between two checkpoints the step is interpolated along log(1 + step), the spacing of checkpoints.

    index of A and B = step at which A has settled / step at which B has                   (F.2 of Paper II: below 1)

An index describes distances and has no null: the distance of attention from the end's does not measure its effect
(`exchange` does). Where the prediction is the attention row itself, the error, which falls as a square, still seems
earlier than the frame; and unused heads move the frame. A curve that still moves at the end settles in the last
interval, since distances are from the end: an index with both there, or both in one interval, rests on the
interpolation alone and is underpowered.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.ratio import ratio

Curves = Float[np.ndarray, "*batch checkpoint"]


@dataclass(frozen=True)
class Curve:
    """Mean distances from the end of all prompts, then of resamples of them; and what is measured, in words."""

    distance: Float[np.ndarray, "mean_and_resamples checkpoint"]
    what: str

    @classmethod
    def of(
        cls, by_prompt: Float[np.ndarray, "prompt checkpoint"], weights: Num[np.ndarray, "resample prompt"], what: str
    ) -> "Curve":
        resampled = (weights @ by_prompt) / weights.sum(axis=1, keepdims=True)
        return cls(np.vstack([by_prompt.mean(axis=0), resampled]), what)


def settled(steps: Int[np.ndarray, " checkpoint"], curves: Curves, epsilon: float) -> Float[np.ndarray, "*batch"]:
    """The step from which on every curve stays within ε of its first value; NaN where it never does, or begins at 0."""
    left = relative(curves)
    last = _last_outside(left, epsilon)
    after = np.asarray(np.minimum(last + 1, len(steps) - 1))
    r0, r1 = (np.asarray(np.take_along_axis(left, i[..., None], axis=-1)[..., 0]) for i in (last, after))
    x = np.log1p(steps.astype(np.float64))
    found = np.expm1(x[last] + ratio(r0 - epsilon, r0 - r1) * (x[after] - x[last]))
    return np.where((last + 1 < len(steps)) & np.isfinite(left).all(axis=-1), found, np.nan)


def interval_of(steps: Int[np.ndarray, " checkpoint"], curve: np.ndarray, epsilon: float) -> tuple[int, int] | None:
    """The two checkpoints between which a curve settles; None where it does not."""
    if np.isnan(settled(steps, curve, epsilon)):
        return None
    last = int(_last_outside(relative(curve), epsilon))
    return int(steps[last]), int(steps[last + 1])


def relative(curves: Curves) -> Curves:
    """|d(t)| / |d(0)|; NaN where the first is 0."""
    return ratio(np.abs(curves), np.abs(curves[..., :1]))


def value_at(steps: np.ndarray, curves: Curves, at: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch"]:
    """|d| / |d(0)| at a step, interpolated along log(1 + step)."""
    x = np.log1p(steps.astype(np.float64))
    flat, where = relative(curves).reshape(-1, len(steps)), np.log1p(np.asarray(at)).reshape(-1)
    found = [np.interp(w, x, r) if np.isfinite(w) else np.nan for w, r in zip(where, flat, strict=True)]
    return np.array(found).reshape(curves.shape[:-1])


def _last_outside(left: Curves, epsilon: float) -> Int[np.ndarray, "*batch"]:
    outside = ~(left <= epsilon)
    return np.asarray(left.shape[-1] - 1 - np.argmax(outside[..., ::-1], axis=-1))
