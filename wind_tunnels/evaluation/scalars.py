"""Figures of an evaluation as the scalars of a record, each with its no-skill null where one was measured."""

import numpy as np

from interp.findings import Interval, Null, Scalar
from interp.records.tunnel_card import Figure

from .baselines import by_predictor
from .evaluation import BEYOND_WINDOW, Evaluation, figure_of

WINDOW_NULL = Null("the best reader of the last observations alone", 0.0, (0.0, 0.0))


def figure_scalars(found: Evaluation) -> dict[str, Scalar]:
    """Every figure with its interval over sequences; of the errors that baselines are measured by, uniform answers."""
    nulls = {name: WINDOW_NULL for name in found.figures if name.endswith(BEYOND_WINDOW)}
    for predictor, errors in by_predictor(found.baselines).items():
        if predictor.endswith("uniform"):
            for figure, value in errors.items():
                name = predictor.removesuffix("uniform") + figure
                nulls[name] = Null("uniform over the answers", value, (value, value))
    return {
        name: _scalar(figure, nulls.get(name), found.n, name.replace("_", " ").replace(".", ": "))
        for name, figure in found.figures.items()
    }


def resampled_scalar(values: np.ndarray, unit: str, null: Null, n: int, meaning: str) -> Scalar:
    """A scalar from its values under `resampled` weights."""
    return _scalar(figure_of(values, unit), null, n, meaning)


def _scalar(figure: Figure, null: Null | None, n: int, meaning: str) -> Scalar:
    interval = Interval(figure.low, figure.high, "95 % percentile bootstrap over sequences")
    null_or_why = null or "no baseline of this figure is measured"
    return Scalar.of(figure.value, figure.unit, interval, null_or_why, n=n, n_unit="sequence", meaning=meaning)
