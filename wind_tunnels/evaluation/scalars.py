"""Figures of an evaluation as the scalars of a record, each with its no-skill null where one was measured."""

from collections.abc import Mapping

import numpy as np

from interp.findings import Interval, Null, Scalar
from interp.records.tunnel_card import Figure
from interp.table import Table

from .evaluation import figure_of

METHOD = "95 % percentile bootstrap over sequences"

_UNIFORM = "uniform over the answers"
_NO_NULL = "no baseline of this figure is measured"


def blind_nulls(baselines: Table) -> dict[str, Null]:
    """What answering the uniform distribution gives for the two errors that baselines are measured by."""
    slices = baselines["slice"].tolist() if "slice" in baselines else [""] * baselines.n_rows
    nulls = {}
    for row, (part, name) in enumerate(zip(slices, baselines["predictor"].tolist(), strict=True)):
        if name == "uniform":
            for figure in ("kl_bits", "mae_per_sequence_bits"):
                value = float(baselines[figure][row])
                nulls[figure if part == slices[0] else f"{part}.{figure}"] = Null(_UNIFORM, value, (value, value))
    return nulls


def figure_scalars(figures: Mapping[str, Figure], nulls: Mapping[str, Null], n: int) -> dict[str, Scalar]:
    """Every figure, with its interval over `n` sequences."""
    return {
        name: Scalar.of(
            figure.value, figure.unit, Interval(figure.low, figure.high, METHOD), nulls.get(name, _NO_NULL),
            n=n, n_unit="sequence", meaning=name.replace("_", " ").replace(".", ": "),
        )
        for name, figure in figures.items()
    }  # fmt: skip


def resampled_scalar(values: np.ndarray, unit: str, null: Null, n: int, meaning: str) -> Scalar:
    """A scalar from its values under `resampled` weights."""
    figure = figure_of(values, unit)
    interval = Interval(figure.low, figure.high, METHOD)
    return Scalar.of(figure.value, unit, interval, null, n=n, n_unit="sequence", meaning=meaning)
