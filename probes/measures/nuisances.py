"""Nuisances that could be mistaken for the target: length, position, domain, last token, surprisal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from interp.statistics.units import clusters_of
from interp.table import Table

from .sample_sizes import MIN_LEVEL

_RANK = 1e-9
_MOST_KNOTS = 5
_PER_KNOT = 20
"""Clusters (or prompts without one) for each knot of a spline; with fewer than two knots it is a straight line."""


@dataclass(frozen=True)
class Design:
    """Columns to regress on, a constant among them, one row for every row of a table; `names` says what they hold."""

    values: Float[np.ndarray, "row column"]
    names: tuple[str, ...]

    def predicted(self, targets: Float[np.ndarray, "row target"]) -> Float[np.ndarray, "row target"]:
        """The targets, predicted by regression on these columns."""
        basis, _ = orthonormal(self.values)
        return basis @ (basis.T @ targets)


def orthonormal(
    columns: Float[np.ndarray, "row column"],
) -> tuple[Float[np.ndarray, "row axis"], Float[np.ndarray, "column axis"]]:
    """An orthonormal basis of the columns, and what takes columns to it; both empty where there are none."""
    basis, singular, right = np.linalg.svd(columns, full_matrices=False)
    kept = singular > _RANK * singular.max(initial=0.0)
    return basis[:, kept], right[kept].T / singular[kept]


def nuisance_design(
    rows: Table,
    levels: Sequence[str] = ("token", "domain"),
    numbers: Mapping[str, Float[np.ndarray, " row"]] | None = None,
    least: int = MIN_LEVEL,
) -> Design:
    """Length, position, the `levels` that rows have and further `numbers`, as far as they vary.

    Numbers act along a cubic spline, with more knots for more clusters. Levels have a column if `least` clusters share
    them, rarer ones together. Positions are levels in sequences; in texts the position is the length.
    """
    clusters = clusters_of(rows)
    n_knots = min(_MOST_KNOTS, len(np.unique(clusters)) // _PER_KNOT)
    is_sequence = len(np.unique(rows["prompt"])) < rows.n_rows
    plain = {"length": rows["length"]}
    if not is_sequence and not (rows["position"] == rows["length"] - 1).all():
        plain["position"] = rows["position"]
    columns, names = [np.ones((rows.n_rows, 1))], []
    for name, values in (plain | dict(numbers or {})).items():
        values = np.asarray(values, dtype=np.float64)
        if np.ptp(values) > 0:
            columns.append(_curves((values - values.mean()) / values.std(), n_knots))
            names.append(name)
    words = {"token": "last token", "previous": "token before", "second": "token before that"}
    for column in (("position",) if is_sequence else ()) + tuple(levels):
        if column in rows:
            indicators = _indicators(rows[column], clusters, least)
            if indicators.shape[1]:
                columns.append(indicators)
                names.append(f"{words.get(column, column)} ({indicators.shape[1]} levels)")
    return Design(np.hstack(columns), tuple(names))


def _curves(values: Float[np.ndarray, " row"], n_knots: int) -> Float[np.ndarray, "row column"]:
    """A cubic spline basis over the quantiles of the values; with fewer than two knots, a straight line."""
    from sklearn.preprocessing import SplineTransformer  # imports pandas, which no completion of a word can wait for

    if n_knots < 2:
        return values[:, None]
    knots = np.unique(np.quantile(values, np.linspace(0, 1, n_knots)))
    return SplineTransformer(knots=knots[:, None], include_bias=False).fit_transform(values[:, None])


def _indicators(values: Shaped[np.ndarray, " row"], units: np.ndarray, least: int) -> Float[np.ndarray, "row level"]:
    """One column for every level that enough units share; none where one level is all there is."""
    pairs = set(zip(values.tolist(), units.tolist(), strict=True))
    names, counts = np.unique(np.array([value for value, _ in pairs]), return_counts=True)
    found = values[:, None] == names[counts >= least]
    return found[:, ~found.all(axis=0)].astype(np.float64)
