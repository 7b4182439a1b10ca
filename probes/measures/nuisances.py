"""What must not pass for uncertainty: length, position, domain, the last token and how expected it was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from interp.table import Table

from .sample_sizes import MIN_LEVEL

_RANK = 1e-9


@dataclass(frozen=True)
class Design:
    """Columns to regress on, a constant among them, one row for every row of a table; `names` says what they hold."""

    values: Float[np.ndarray, "row column"]
    names: tuple[str, ...]

    def told(self, targets: Float[np.ndarray, "row target"]) -> Float[np.ndarray, "row target"]:
        """What a regression on these columns tells of the targets."""
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

    Levels have a column where `least` prompts share them; what is rarer is one level together. Positions are levels
    in sequences, where the same ones recur; in texts the position is the length.
    """
    is_sequence = len(np.unique(rows["prompt"])) < rows.n_rows
    plain = {"length": rows["length"]}
    if not is_sequence and not (rows["position"] == rows["length"] - 1).all():
        plain["position"] = rows["position"]
    columns, names = [np.ones((rows.n_rows, 1))], []
    for name, values in (plain | dict(numbers or {})).items():
        values = np.asarray(values, dtype=np.float64)
        if np.ptp(values) > 0:
            columns.append(((values - values.mean()) / values.std())[:, None])
            names.append(name)
    words = {"token": "last token"}
    for column in (("position",) if is_sequence else ()) + tuple(levels):
        if column in rows:
            indicators = _indicators(rows[column], rows["prompt"], least)
            if indicators.shape[1]:
                columns.append(indicators)
                names.append(f"{words.get(column, column)} ({indicators.shape[1]} levels)")
    return Design(np.hstack(columns), tuple(names))


def _indicators(values: Shaped[np.ndarray, " row"], units: np.ndarray, least: int) -> Float[np.ndarray, "row level"]:
    """One column for every level that enough units share; none where one level is all there is."""
    pairs = set(zip(values.tolist(), units.tolist(), strict=True))
    names, counts = np.unique(np.array([value for value, _ in pairs]), return_counts=True)
    found = values[:, None] == names[counts >= least]
    return found[:, ~found.all(axis=0)].astype(np.float64)
