"""Random stochastic matrices whose entries lie on a grid, so that a token can show each of them exactly.

Rounded rows are corrected step by step at their smallest or largest entry, with ties broken by the unrounded size, so
that any relabelling of a matrix is as likely as the matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
from jaxtyping import Float, Int

from ..validation import Conflict


@dataclass(frozen=True)
class ProbabilityGrid:
    """Probabilities that are whole multiples of `step`, none below `floor`."""

    step: float
    floor: float

    @property
    def n_steps(self) -> int:
        """1 in steps."""
        return round(1.0 / self.step)

    @property
    def least(self) -> int:
        """The floor in steps."""
        return round(self.floor / self.step)

    @property
    def n_levels(self) -> int:
        """The number of probabilities from the floor to 1."""
        return self.n_steps - self.least + 1

    def n_rows(self, n_outcomes: int) -> int:
        """The number of distributions over `n_outcomes` on the grid."""
        return comb(self.n_steps - self.least * n_outcomes + n_outcomes - 1, n_outcomes - 1)

    def conflicts(self, n_outcomes: int) -> Iterator[Conflict]:
        """Reasons why the grid has no distribution over `n_outcomes`."""
        is_uneven = self.step > 0.5 or abs(1.0 / self.step - self.n_steps) > 1e-9
        found = f"grid = {self.step}: no whole number of such steps makes 1"
        yield is_uneven, found, "Choose 1 divided by a whole number of 2 or more, for example 0.01."
        found = f"floor = {self.floor} is not on the grid of {self.step}"
        fix = f"Choose a whole multiple of the grid, for example floor={self.step}."
        yield abs(self.floor / self.step - self.least) > 1e-9, found, fix
        found = f"floor = {self.floor} for each of {n_outcomes} outcomes is more than 1 in all"
        fix = f"Choose floor up to {self.n_steps // n_outcomes * self.step:g}."
        yield self.least * n_outcomes > self.n_steps, found, fix

    def draw(
        self, rng: np.random.Generator, shape: tuple[int, int, int], *, stay: float = 0.0
    ) -> Int[np.ndarray, "matrix row outcome"]:
        """Matrices of independent rows, in steps: every row sums to `n_steps`.

        `stay` mixes that share of the identity into each matrix before it is rounded.
        """
        raw = (1.0 - stay) * rng.dirichlet(np.ones(shape[2]), size=shape[:2]) + stay * np.eye(*shape[1:])
        raised = np.maximum(raw, self.floor)
        raised /= raised.sum(axis=2, keepdims=True)
        steps = np.maximum(np.rint(raised * self.n_steps).astype(np.int64), self.least)
        while (lack := self.n_steps - steps.sum(axis=2)).any():
            by_size = steps + 0.5 * raw
            changed = np.where(lack > 0, by_size.argmin(axis=2), by_size.argmax(axis=2))
            steps += np.sign(lack)[..., None] * (changed[..., None] == np.arange(shape[2]))
        return steps

    def probabilities(self, steps: Int[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Steps as probabilities."""
        return steps / self.n_steps

    def rank(self, steps: Int[np.ndarray, "*rows outcome"]) -> Int[np.ndarray, "*rows"]:
        """The lexicographic rank of each row among all distributions on the grid."""
        above, n_after = steps - self.least, steps.shape[-1] - 1
        free = self.n_steps - self.least * steps.shape[-1]  # what is left to give away, in steps
        ranks = np.zeros(steps.shape[:-1], dtype=np.int64)
        for place in range(n_after):
            n_later = n_after - place
            # a rest r has comb(r + n_later - 1, n_later - 1) distributions over the later places
            with_less = np.cumsum([0, *(comb(r + n_later - 1, n_later - 1) for r in range(free + 1))])
            rest = free - above[..., :place].sum(axis=-1)
            ranks += with_less[rest + 1] - with_less[rest + 1 - above[..., place]]
        return ranks
