"""Numbers of attention heads, averaged within each prompt, with bootstrap bands over prompts.

Rows of one prompt (or of one sequence of a wind tunnel) are averaged first, so that a prompt counts once however
many rows it has. Every statistic of a probe meets the same resamples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.findings import Interval
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights
from interp.table import Table, number_columns

from .sample_sizes import FEW_PROMPTS

_TAILS = (0.025, 0.975)


@dataclass(frozen=True)
class Units:
    """The prompts that rows belong to, and how often each occurs in every bootstrap resample.

    `code` says which unit a row belongs to; `index` is the unit's number in the prompt set.
    """

    code: Int[np.ndarray, " row"]
    index: Int[np.ndarray, " unit"]
    weights: Int[np.ndarray, "resample unit"]
    name: str

    @classmethod
    def of(cls, rows: Table, name: str, n_bootstrap: int, rng: np.random.Generator) -> "Units":
        """Whole units are resampled, within the strata of the draw."""
        index, first, code = np.unique(rows["prompt"], return_index=True, return_inverse=True)
        weights = bootstrap_weights(index, rows["stratum"][first], n_bootstrap, rng)
        return cls(code, index, weights, name)

    @property
    def n(self) -> int:
        return len(self.index)

    @property
    def counted(self) -> dict[str, Any]:
        """What a number over these units says of them, as fields of a scalar."""
        return {"n": self.n, "n_unit": self.name, "underpowered": self.n < FEW_PROMPTS}

    def means(self, rows: Float[np.ndarray, "layer row *rest"]) -> Float[np.ndarray, "unit layer *rest"]:
        """The mean over the rows of every unit; NaN rows are left out, and a unit of nothing else is NaN."""
        order = np.argsort(self.code, kind="stable")
        starts = np.searchsorted(self.code[order], np.arange(self.n))
        ordered = np.asarray(rows, dtype=np.float64)[:, order]
        missing = np.isnan(ordered)
        total = np.add.reduceat(np.where(missing, 0.0, ordered), starts, axis=1)
        count = np.add.reduceat(~missing, starts, axis=1, dtype=np.int64)
        return np.moveaxis(ratio(total, count), 1, 0)

    def resampled(self, values: Float[np.ndarray, "unit *rest"]) -> Float[np.ndarray, "resample *rest"]:
        """The mean over units in every resample; NaN units are left out."""
        present = ~np.isnan(values)
        flat = np.where(present, values, 0.0).reshape(self.n, -1)
        shape = (len(self.weights), *values.shape[1:])
        total = (self.weights @ flat).reshape(shape)
        if present.all():
            return total / self.weights.sum(axis=1).reshape(-1, *([1] * (values.ndim - 1)))
        return ratio(total, (self.weights @ present.reshape(self.n, -1)).reshape(shape))

    def mean_interval(self, values: Float[np.ndarray, " unit"], method: str, otherwise: str) -> Interval | str:
        """The interval of the mean over units; `otherwise` where it is undefined."""
        return Interval.of(interval(float(mean_of_units(values)), self.resampled(values)), method, otherwise)

    def mean_columns(self, values: Mapping[str, Float[np.ndarray, "unit _entry"]]) -> dict[str, np.ndarray]:
        """Means over units with their bands, as columns of a table."""
        columns: dict[str, np.ndarray] = {}
        for name, mine in values.items():
            columns |= number_columns(name, mean_of_units(mine), band(self.resampled(mine)))
        return columns


def mean_of_units(values: Float[np.ndarray, "unit *rest"]) -> Float[np.ndarray, "*rest"]:
    """The mean over units; NaN units are left out, and where all are, it is NaN."""
    present = ~np.isnan(values)
    return ratio(np.where(present, values, 0.0).sum(axis=0), present.sum(axis=0))


def band(replicates: Float[np.ndarray, "resample *rest"]) -> Float[np.ndarray, "bound *rest"]:
    """The central 95 % of bootstrap replicates; NaN where none is defined."""
    undefined = np.isnan(replicates)
    if not undefined.any():
        return np.quantile(replicates, _TAILS, axis=0)
    nothing = undefined.all(axis=0)
    return np.where(nothing, np.nan, np.nanquantile(np.where(nothing, 0.0, replicates), _TAILS, axis=0))


def mean_and_band(draws: Float[np.ndarray, "draw *rest"]) -> Float[np.ndarray, "mean_low_high *rest"]:
    """The mean of draws and their central 95 %, as the null of a column has them."""
    return np.stack([draws.mean(axis=0), *band(draws)])


def interval(value: float, replicates: Float[np.ndarray, " resample"]) -> tuple[float, float] | None:
    """The 95 % interval of one number, never without the number itself; None where it is undefined.

    A rank correlation that is ±1 by luck has replicates that are all smaller.
    """
    low, high = band(replicates)
    return None if np.isnan(low) or np.isnan(value) else (min(value, float(low)), max(value, float(high)))
