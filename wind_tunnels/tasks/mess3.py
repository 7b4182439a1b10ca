"""The process Mess3: three states and three symbols whose beliefs form a fractal in the simplex.

A state moves to each other one with probability x; it emits its own symbol with probability a and each other one with
(1 − a)/2. The chain starts in its stationary distribution, which is uniform.

Source: A. Shai et al., "Transformers represent belief state geometry in their residual stream" (arXiv 2405.15943), with
x = 0.05, a = 0.85 and sequences of 10; the process is S. Marzen and J. Crutchfield's (2017). Its matrices
T^(o)[s, s'] = p(s' | s) p(o | s') emit on arrival; from the stationary start that is emission by the state one is in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import up_to
from .filtering import WINDOWS, draw_chains, filter_states, filter_window
from .shipped_task import ShippedTask

N = 3
START = 3
STATIONARY = np.full(N, 1.0 / N)
RELABELLINGS = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]])
"""All permutations; the cyclic ones come first, so that three copies are balanced."""


@dataclass(frozen=True)
class Mess3(ShippedTask):
    """Each of `K` symbols of Mess3, whose states move to each other one with p = `x` and emit their own with `a`."""

    K: int = 10
    x: float = 0.05
    a: float = 0.85

    name: ClassVar[str] = "mess3"
    question: ClassVar[str] = "Does the network carry a belief about the hidden state where only symbols are asked for?"
    length_field: ClassVar[str] = "K"
    rules: ClassVar = {"K": 1, "x": up_to(0.5), "a": up_to(1.0)}
    units: ClassVar[Mapping[str, str]] = {**REQUIRED_UNITS, "belief_entropy_bits": "bits"}

    @property
    def vocab_size(self) -> int:
        return N + 1

    @property
    def n_positions(self) -> int:
        return self.K

    @property
    def transition(self) -> Float[np.ndarray, "state state"]:
        """p(next state | state)."""
        return np.where(np.eye(N, dtype=bool), 1.0 - 2.0 * self.x, self.x)

    @property
    def emission(self) -> Float[np.ndarray, "state symbol"]:
        """p(symbol | state)."""
        return np.where(np.eye(N, dtype=bool), self.a, (1.0 - self.a) / 2.0)

    @property
    def most_copies(self) -> int:
        """The number of relabellings, which are all equally likely."""
        return len(RELABELLINGS)

    def relabelled(self, copy, shift, symbols) -> tuple[np.ndarray, ...]:
        return (RELABELLINGS[copy[:, None], symbols],)

    def encode(self, symbols: Int[np.ndarray, "sequence step"]) -> Sequences:
        """The sequences that show these symbols, with the exact posterior; the last is an answer only."""
        n = len(symbols)
        process = STATIONARY, self.transition[None], self.emission[None]
        filtered = filter_states(*process, symbols)
        belief = np.concatenate([np.tile(STATIONARY, (n, 1, 1)), filtered.after[:, :-1]], axis=1)
        steps = np.arange(self.K)
        return self._sequences(
            np.concatenate([np.full((n, 1), START), symbols[:, :-1]], axis=1), steps, symbols, filtered.symbol,
            np.arange(N), steps, {"belief_entropy_bits": entropy_bits(belief)},
            belief=belief, windows={w: filter_window(*process, symbols, w).symbol for w in WINDOWS},
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        return draw_chains(rng, STATIONARY, self.transition[None], self.emission[None], (n, self.K))[1:]
