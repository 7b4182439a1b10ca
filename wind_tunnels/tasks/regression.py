"""In-context linear regression: the next output after pairs (x, y) of y = w x + noise with an unknown slope.

Slopes, inputs and outputs lie on grids, so that the posterior is exact. Third parties in Paper I v3 and later (arXiv
2512.22471) name the task, without a specification; sizes are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import POSITIVE
from .shipped_task import ShippedTask, in_turn

PRIOR_REACH = 3.0
"""The range of slopes, in prior standard deviations to either side."""

Pairs = Int[np.ndarray, "sequence pair"]


@dataclass(frozen=True)
class Regression(ShippedTask):
    """`L` pairs (x, y) of a line through the origin; tokens x1 y1 x2 y2 … xL, scored at every x.

    Inputs are the ids 0 … n_x − 1, then follow `n_y` outputs, on a grid from −`y_max` to `y_max`; `n_w` slopes lie on
    one too. `noise` and `prior_sd` are the standard deviations of y and of the slope, in units of y.
    """

    L: int = 12
    n_x: int = 4
    n_y: int = 12
    n_w: int = 33
    noise: float = 0.3
    prior_sd: float = 1.0
    y_max: float = 2.0

    name: ClassVar[str] = "regression"
    question: ClassVar[str] = "Does the network infer a slope from noisy pairs, and know how well it knows it?"
    length_field: ClassVar[str] = "L"
    rules: ClassVar = {
        "L": 1, "n_x": 2, "n_y": 2, "n_w": 2, "noise": POSITIVE, "prior_sd": POSITIVE, "y_max": POSITIVE
    }  # fmt: skip
    units: ClassVar[Mapping[str, str]] = {
        **REQUIRED_UNITS,
        "evidence": "pairs",
        "x": "1",
        "slope": "1",
        "slope_mean": "1",
        "slope_sd": "1",
    }

    @property
    def vocab_size(self) -> int:
        return self.n_x + self.n_y

    @property
    def n_positions(self) -> int:
        return 2 * self.L - 1

    @property
    def most_copies(self) -> int:
        """A sequence and its mirror images in x, in y (which change the sign of the slope), and in both."""
        return 4

    def relabelled(self, copy, shift, w, x, y) -> tuple[np.ndarray, ...]:
        in_x, in_y = np.isin(copy, (1, 3)), np.isin(copy, (2, 3))
        return (
            np.where(in_x != in_y, self.n_w - 1 - w, w),
            np.where(in_x[:, None], self.n_x - 1 - x, x),
            np.where(in_y[:, None], self.n_y - 1 - y, y),
        )

    def encode(self, w: Int[np.ndarray, " sequence"], x: Pairs, y: Pairs) -> Sequences:
        """The sequences of these slopes, inputs and outputs (grid indices), with the exact posterior."""
        belief = self.slope_posterior(x, y)  # [sequence, pair, slope]
        every_x = (belief @ self._cell_masses.reshape(-1, self.n_w).T).reshape(*x.shape, self.n_x, self.n_y)
        posterior = np.take_along_axis(every_x, x[:, :, None, None], axis=2)[:, :, 0]  # [sequence, pair, output]
        posterior /= posterior.sum(axis=2, keepdims=True)
        n_before = np.arange(self.L)
        mean = belief @ self.slopes
        columns = {
            "x": self.inputs[x],
            "slope": self.slopes[w][:, None],
            "slope_mean": mean,
            "slope_sd": np.sqrt((belief * np.square(self.slopes - mean[..., None])).sum(axis=2)),
        }
        slice_ids = self.n_x + np.arange(self.n_y)
        return self._sequences(
            in_turn(x, y + self.n_x)[:, :-1], 2 * n_before, y + self.n_x, posterior, slice_ids, n_before, columns,
            belief=belief,
        )  # fmt: skip

    def slope_posterior(self, x: Pairs, y: Pairs) -> Float[np.ndarray, "sequence pair slope"]:
        """The posterior of the slope before each output is shown."""
        with np.errstate(divide="ignore"):  # a cell out of a slope's reach has mass 0 in float64
            log_mass = np.log(self._cell_masses)[x[:, :-1], y[:, :-1]]  # [sequence, pair, slope]
        log_weight = np.broadcast_to(np.log(self.prior), (*x.shape, self.n_w)).copy()
        log_weight[:, 1:] += np.cumsum(log_mass, axis=1)
        weight = np.exp(log_weight - log_weight.max(axis=2, keepdims=True))
        return weight / weight.sum(axis=2, keepdims=True)

    @cached_property
    def slopes(self) -> Float[np.ndarray, " slope"]:
        """The grid of slopes, lowest first."""
        return np.linspace(-PRIOR_REACH, PRIOR_REACH, self.n_w) * self.prior_sd

    @cached_property
    def inputs(self) -> Float[np.ndarray, " input"]:
        """The grid of inputs, lowest first."""
        return np.linspace(-1.0, 1.0, self.n_x)

    @cached_property
    def prior(self) -> Float[np.ndarray, " slope"]:
        """The probability of each slope."""
        density = np.exp(-0.5 * np.square(self.slopes / self.prior_sd))
        return density / density.sum()

    @cached_property
    def _cell_masses(self) -> Float[np.ndarray, "input output slope"]:
        """p(y | x, w): the mass of N(w x, noise²) in each cell."""
        edges = np.linspace(-self.y_max, self.y_max, self.n_y + 1)
        edges[[0, -1]] = -np.inf, np.inf
        mean = self.inputs[:, None, None] * self.slopes  # [input, output, slope]
        low, high = ((edge[:, None] - mean) / self.noise for edge in (edges[:-1], edges[1:]))
        # above the mean, use the other tail: a difference of two numbers near 1 loses precision
        return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        w = rng.choice(self.n_w, size=n, p=self.prior)
        x = rng.integers(self.n_x, size=(n, self.L))
        cumulative = np.cumsum(self._cell_masses, axis=1)[x, :, w[:, None]]  # [sequence, pair, output]
        # the last cell takes the rounding error
        return w, x, (rng.random((n, self.L, 1)) > cumulative[..., :-1]).sum(axis=2)
