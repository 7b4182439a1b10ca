"""Captured numbers, rejected with a message where they are not finite.

A row that is NaN in every layer and head is absent: it has a single key, or no other prompt's keys fit. Means over
prompts leave such rows out.
"""

import numpy as np

from interp.capture import Capture
from interp.errors import ModelError
from interp.need import Need


def finite(capture: Capture, need: Need) -> np.ndarray:
    """The rows (or the weights) of a need; `ModelError` where some number is not finite."""
    values = capture[need]
    _refuse(capture, need, ~np.isfinite(values))
    return values


def finite_or_absent(capture: Capture, need: Need) -> np.ndarray:
    """The rows `[layer, row, head]` of a need, where whole rows may be absent; `ModelError` for other NaN."""
    values = capture[need]
    absent = np.isnan(values).all(axis=(0, 2), keepdims=True)
    _refuse(capture, need, ~np.isfinite(values) & ~absent)
    return values


def _refuse(capture: Capture, need: Need, is_bad: np.ndarray) -> None:
    is_one = need.described.layers == "once"
    what = need.described.meaning.split(",")[0].removeprefix("the ")
    for layer, bad in enumerate(is_bad[None] if is_one else is_bad):
        refuse_not_finite(capture, what, bad, "" if is_one else f" at layer {layer}")


def refuse_not_finite(capture: Capture, what: str, is_bad: np.ndarray, where: str = "") -> None:
    """Raise `ModelError` where some of these numbers of a model are bad."""
    if is_bad.any():
        raise ModelError(
            asked=f"the {what} of {capture.model.name}{where}",
            found=f"{is_bad.sum()} of {is_bad.size} numbers are not finite",
            fix=f"Load the model in float32 (it was read in {capture.model.dtype}), or check its weights.",
        )
