"""Fewer points where there are more than a reader can see and a page can hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np

N_POINTS = 1_500
"""Points of one scatter trace above which it is thinned."""


def trace_length(trace: Mapping[str, Any]) -> int:
    """How many points a trace has."""
    return max((len(trace[axis]) for axis in "xyabc" if _is_array(trace.get(axis))), default=0)


def kept_points(trace: Mapping[str, Any]) -> np.ndarray | None:
    """Which points of a long scatter trace are drawn, the same for all traces of its length; None where all are.

    Lines keep evenly spaced points; markers a fixed random choice, since even spacing would pick always the same
    positions out of regular sequences. Other kinds of traces are counts or matrices and stay whole.
    """
    n = trace_length(trace)
    if n <= N_POINTS or not str(trace.get("type", "scatter")).startswith("scatter"):
        return None
    if "lines" in str(trace.get("mode", "lines")):
        return np.unique(np.linspace(0, n - 1, N_POINTS).astype(int))
    return np.sort(np.random.default_rng(0).choice(n, N_POINTS, replace=False))


def picked(value: Any, keep: np.ndarray, n: int) -> Any:
    """A trace (or a part of it) with every array of `n` entries cut down to those to keep."""
    if isinstance(value, Mapping):
        return {key: picked(part, keep, n) for key, part in value.items()}
    if _is_array(value) and len(value) == n:
        return value[keep] if isinstance(value, np.ndarray) else [value[i] for i in keep]
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)
