"""Numbers over seeds of a training: a mean, and paired differences, with t intervals over the seeds; the weights."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import SupportsFloat

import numpy as np
from scipy import stats

from interp.findings import Interval, Null, Scalar
from interp.statistics.t_interval import t_half_width
from interp.table import LABEL, Table

from ..networks.weights import weights_digest
from ..plans.sweep import over_seeds

METHOD = "t over seeds of the training"


def models_table(trained: Sequence[tuple[str, Path]]) -> Table:
    """The trained networks by name, each with the SHA-256 of its file of weights."""
    columns = {
        "model": np.array([name for name, _ in trained]),
        "fingerprint": np.array([weights_digest(folder) for _, folder in trained]),
    }
    return Table(columns, dict.fromkeys(columns, LABEL), "Networks behind these numbers; SHA-256 of their weights.")


def mean_scalar(values: Sequence[float], unit: str, null: Null, meaning: str) -> Scalar:
    """The mean of what cannot be negative, one value a seed; its interval is cut at 0."""
    found = over_seeds(list(values))
    if len(values) > 1 and len(set(values)) == 1:
        found |= {"interval": None, "interval_reason": "all seeds give the same"}
    interval = Interval.of(found["interval"], METHOD, found.get("interval_reason", ""))
    return Scalar.of(found["mean"], unit, interval, null, n=len(values), n_unit="seed", meaning=meaning)


def difference_scalar(first: Sequence[float], second: Sequence[float], unit: str, meaning: str) -> Scalar:
    """The mean of `first` minus `second`, paired by seed, with the p of the paired t test; null: no difference."""
    return _paired(np.subtract(first, second), unit, meaning, Null("no difference", 0.0, (0.0, 0.0)), float)


def ratio_scalar(first: Sequence[float], second: Sequence[float], meaning: str) -> Scalar:
    """The geometric mean of `first` over `second`, paired by seed; the interval and the test are of its logarithm."""
    return _paired(np.log(np.divide(first, second)), "1", meaning, Null("no difference", 1.0, (1.0, 1.0)), np.exp)


def _paired(values: np.ndarray, unit: str, meaning: str, null: Null, back: Callable[[float], SupportsFloat]) -> Scalar:
    n, mean = len(values), float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if n > 1 else 0.0
    about = {"n": n, "n_unit": "seed", "meaning": meaning}
    if spread == 0.0:
        reason = "one seed" if n == 1 else "all seeds give the same"
        return Scalar.of(float(back(mean)), unit, reason, null, underpowered=True, **about)
    error = spread / np.sqrt(n)
    half = float(t_half_width(values))
    interval = Interval(float(back(mean - half)), float(back(mean + half)), f"{METHOD}, paired")
    p = float(2 * stats.t.sf(abs(mean) / error, n - 1))
    return Scalar.of(float(back(mean)), unit, interval, null, p=p, **about)
