"""The principal axes of half of the rows, and what a readout along them predicts at the other half.

With more features than fitting rows, inner products of all rows are used, computed once for all half splits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from interp.statistics.ridge import PrincipalForm, RowAxes

from .halves import HalfSplit
from .layers import ScaledRows, unit

_CANCELLED = 1e-5
"""Norm of what a half split leaves of the rows, relative to their own, below which it is rounding of the model's."""


@dataclass(frozen=True)
class HalfForm:
    """Principal axes of the fitting rows. `weights` take coefficients on them to the columns of `others`.

    These are the held-out rows' features, or inner products with the fitting rows, after the half split's removal.
    `first` is the coordinate of all rows along the first axis, up to a constant.
    """

    axes: RowAxes
    weights: Float[np.ndarray, "column axis"]
    others: Float[np.ndarray, "held_out column"]
    first: Float[np.ndarray, "row 1"]

    @classmethod
    def of(cls, rows: ScaledRows, half_split: HalfSplit) -> "HalfForm | None":
        """None where the half split is not usable, or its removal leaves only rounding."""
        if not half_split.is_usable:
            return None
        least = _CANCELLED * float(np.linalg.norm(rows.points[half_split.fitting]))
        if rows.products is None or len(half_split.fitting) > rows.points.shape[1]:
            fitted, held_out = half_split.apply(rows.points)
            if np.linalg.norm(fitted) <= least:
                return None
            form = PrincipalForm.of(fitted)
            return cls(form, form.directions.T, held_out, rows.points @ form.directions[:1].T)
        fitted = half_split.fitted(rows.products)  # the other side is still all rows
        products, across = half_split.apply(fitted.T)
        if np.sqrt(max(0.0, float(np.trace(products)))) <= least:
            return None
        axes = RowAxes.of_products(products)
        weights = axes.left / axes.singular
        return cls(axes, weights, across, fitted.T @ weights[:, :1])

    @cached_property
    def held_out(self) -> Float[np.ndarray, "held_out axis"]:
        """The held-out rows along the axes."""
        return self.others @ self.weights

    def predicted(self, coefficients: Float[np.ndarray, "axis label"]) -> Float[np.ndarray, "held_out label"]:
        """What a readout of these coefficients on the axes predicts at the held-out rows."""
        return self.others @ (self.weights @ coefficients)

    def row_weights(self, coefficients: Float[np.ndarray, " axis *label"]) -> Float[np.ndarray, "fitted *label"]:
        """Weights of the fitting rows in the direction that has these coefficients on the first few axes."""
        n = len(coefficients)
        return self.axes.left[:, :n] @ (coefficients.T / self.axes.singular[:n]).T

    def direction(
        self, coefficients: Float[np.ndarray, " axis"], rows: ScaledRows, half_split: HalfSplit
    ) -> np.ndarray:
        """The unit direction in the space of the features that has these coefficients on the first few axes."""
        return unit(half_split.fitted(rows.points).T @ self.row_weights(coefficients))
