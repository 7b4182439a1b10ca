"""Figures of an evaluation as the scalars of a record, each with its no-skill null where one was measured."""

from collections.abc import Mapping

import numpy as np

from interp.findings import Interval, Null, Scalar
from interp.records.tunnel_card import Figure
from interp.table import Table

from .baselines import by_predictor
from .evaluation import BEYOND_WINDOW, figure_of

METHOD = "95 % percentile bootstrap over sequences"

_UNIFORM = "uniform over the answers"
_NO_NULL = "no baseline of this figure is measured"

WINDOW_NULL = Null("the best reader of the last observations alone", 0.0, (0.0, 0.0))


def uniform_nulls(baselines: Table) -> dict[str, Null]:
    """What answering the uniform distribution gives for the two errors that baselines are measured by."""
    return {
        predictor.removesuffix("uniform") + figure: Null(_UNIFORM, value, (value, value))
        for predictor, errors in by_predictor(baselines).items()
        if predictor.endswith("uniform")
        for figure, value in errors.items()
    }


def figure_scalars(figures: Mapping[str, Figure], nulls: Mapping[str, Null], n: int) -> dict[str, Scalar]:
    """Every figure, with its interval over `n` sequences."""
    nulls = {name: WINDOW_NULL for name in figures if name.endswith(BEYOND_WINDOW)} | dict(nulls)
    return {
        name: _scalar(figure, nulls.get(name, _NO_NULL), n, name.replace("_", " ").replace(".", ": "))
        for name, figure in figures.items()
    }


def resampled_scalar(values: np.ndarray, unit: str, null: Null, n: int, meaning: str) -> Scalar:
    """A scalar from its values under `resampled` weights."""
    return _scalar(figure_of(values, unit), null, n, meaning)


def _scalar(figure: Figure, null: Null | str, n: int, meaning: str) -> Scalar:
    interval = Interval(figure.low, figure.high, METHOD)
    return Scalar.of(figure.value, figure.unit, interval, null, n=n, n_unit="sequence", meaning=meaning)
