"""What must not pass for uncertainty: position, length, last token and domain, taken out by regression.

The regression is fitted on one half of the prompts and applied to both, to activations and entropies alike, so that
nothing of the judged half leaks into what it is judged by.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from interp.table import Table

from .sample_sizes import MIN_LEVEL

_RANK = 1e-9


@dataclass(frozen=True)
class Removal:
    """Columns of a design for all rows, and their regression as fitted on the `fitting` rows.

    `basis` is an orthonormal basis of the design there; `names` says in words what it holds.
    """

    design: Float[np.ndarray, "row column"]
    fitting: Int[np.ndarray, " fitted"]
    basis: Float[np.ndarray, "fitted nuisance"]
    to_coefficients: Float[np.ndarray, "column nuisance"]
    names: tuple[str, ...]

    @classmethod
    def of(cls, design: np.ndarray, fitting: np.ndarray, names: tuple[str, ...]) -> "Removal":
        basis, singular, right = np.linalg.svd(design[fitting], full_matrices=False)
        kept = singular > _RANK * singular[0]
        return cls(design, fitting, basis[:, kept], right[kept].T / singular[kept], names)

    def apply(self, values: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row feature"]:
        """What the regression leaves of values of all rows."""
        return values - self.predict(values[self.fitting])

    def predict(self, fitted: Float[np.ndarray, "fitted target"]) -> Float[np.ndarray, "row target"]:
        """What the design tells of all rows, from values at the fitting rows."""
        return self.design @ (self.to_coefficients @ (self.basis.T @ fitted))

    def apply_to_fitting(self, values: Float[np.ndarray, "fitted target"]) -> Float[np.ndarray, "fitted target"]:
        """The same for values that exist at the fitting rows alone."""
        return values - self.basis @ (self.basis.T @ values)

    def apply_to_products(self, products: Float[np.ndarray, "row row"]) -> Float[np.ndarray, "row fitted"]:
        """Inner products of all rows with the fitting ones after `apply`, from the inner products before it.

        With what the design tells, M Bᵀ X, taken off rows X with products K: (1 − M Bᵀ) K (1 − B Mᵀ).
        """
        told = self.design @ self.to_coefficients
        basis = np.zeros((len(products), self.basis.shape[1]))
        basis[self.fitting] = self.basis
        # products are symmetric: rows are picked and worked on, which lie side by side in memory
        left = products[self.fitting]
        left -= self.basis @ (self.basis.T @ left)
        left -= (left @ basis) @ told.T
        return left.T

    @property
    def leaves_something(self) -> bool:
        """Whether at least half of the fitting rows' freedom is left."""
        return 2 * self.basis.shape[1] < len(self.fitting)


def mean_alone(n_rows: int, fitting: Int[np.ndarray, " fitted"]) -> Removal:
    """The fitting half's mean taken off, and nothing else."""
    return Removal.of(np.ones((n_rows, 1)), fitting, ())


def all_nuisances(rows: Table, fitting: Int[np.ndarray, " fitted"]) -> Removal:
    """Length, position, last token and domain, as far as they vary.

    Tokens and domains are levels where enough prompts of the fitting half share them; what is rarer is one level
    together. Positions are levels in sequences, where the same ones recur; in texts the position is the length.
    """
    units = rows["prompt"][fitting]
    is_sequence = len(np.unique(rows["prompt"])) < rows.n_rows
    columns, names = [np.ones((rows.n_rows, 1))], []
    numbers = ["length"] if is_sequence else ["length", "position"]
    levels = {"position": "position"} if is_sequence else {}
    for column in numbers:
        values = np.asarray(rows[column], dtype=np.float64)
        same = column == "position" and bool((values == rows["length"] - 1).all())
        if np.ptp(values[fitting]) > 0 and not same:
            centre, spread = values[fitting].mean(), values[fitting].std()
            columns.append(((values - centre) / spread)[:, None])
            names.append(column)
    for column, name in (levels | {"token": "last token", "domain": "domain"}).items():
        if column not in rows:
            continue
        indicators = _indicators(rows[column], fitting, units)
        if indicators.shape[1]:
            columns.append(indicators)
            names.append(f"{name} ({indicators.shape[1]} levels)")
    return Removal.of(np.hstack(columns), fitting, tuple(names))


def _indicators(
    values: Shaped[np.ndarray, " row"], fitting: Int[np.ndarray, " fitted"], units: np.ndarray
) -> Float[np.ndarray, "row level"]:
    """One column for every level that enough units of the fitting half share; none where one level is all there is."""
    pairs = {(value, unit) for value, unit in zip(values[fitting].tolist(), units.tolist(), strict=True)}
    names, counts = np.unique(np.array([value for value, _ in pairs]), return_counts=True)
    frequent = names[counts >= MIN_LEVEL]
    found: Bool[np.ndarray, "row level"] = values[:, None] == frequent
    varies = found[fitting].any(axis=0) & ~found[fitting].all(axis=0)
    return found[:, varies].astype(np.float64)
