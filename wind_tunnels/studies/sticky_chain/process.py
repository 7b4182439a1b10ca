"""The sticky Markov chain of Paper II, on which a single attention head is trained to compare learning rules.

Symbols lie on a circle. The chain stays with probability p, else it moves with weight 1 / circular distance. A head
reads x_t = μ(y_{t−1}) + ε and predicts y_t; μ and ε are standard normal, and μ is the same for all sequences. The chain
is uniform over symbols, so H(Y_t | Y_{t−1}), the least mean loss, is the entropy of any row.

Source: Paper II (arXiv 2512.22473), section 5.2. Its code adds `self_prob` before and after normalising a row: 0.3
becomes 0.350. That is `normalised="published"`; an `"exact"` chain stays with the probability given.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits

from ...tasks.filtering import draw_chains

N_FEATURES = 20
Walk = tuple[Float[np.ndarray, "sequence pos feature"], Int[np.ndarray, "sequence symbol"]]


@dataclass(frozen=True)
class StickyChain:
    """The process; two symbols or more."""

    n_symbols: int = 8
    self_prob: float = 0.3
    normalised: Literal["published", "exact"] = "published"

    @property
    def transition(self) -> Float[np.ndarray, "symbol next"]:
        """p(y_t | y_{t−1}), row by row."""
        place = np.arange(self.n_symbols)
        apart = np.abs(place[:, None] - place)
        distance = np.minimum(apart, self.n_symbols - apart)
        weight = np.divide(1.0, distance, out=np.zeros_like(distance, dtype=np.float64), where=distance > 0)
        if self.normalised == "published":
            weight += self.self_prob * np.eye(self.n_symbols)
        moved = weight / weight.sum(axis=1, keepdims=True)
        return (1 - self.self_prob) * moved + self.self_prob * np.eye(self.n_symbols)

    @property
    def next_entropy_bits(self) -> float:
        """H(Y_t | Y_{t−1}); 2.639 bits (1.829 nats) at the published sizes."""
        return float(entropy_bits(self.transition).mean())

    @property
    def uniform_bits(self) -> float:
        """The loss of a uniform prediction."""
        return float(np.log2(self.n_symbols))

    def sample(self, rng: np.random.Generator, n_positions: int) -> Walk:
        """One sequence of `n_positions` predictions, from the uniform start: inputs x_t, and y_t with the first y_0."""
        shown = np.eye(self.n_symbols)[None]
        start = np.full(self.n_symbols, 1 / self.n_symbols)
        _, symbols = draw_chains(rng, start, self.transition[None], shown, (1, n_positions + 1))
        noise = rng.standard_normal((1, n_positions, N_FEATURES))
        return self.means[symbols[:, :-1]] + noise, symbols

    @property
    def means(self) -> Float[np.ndarray, "symbol feature"]:
        """μ of each symbol, the same for every sequence."""
        return np.random.default_rng(0).standard_normal((self.n_symbols, N_FEATURES))

    def surprise_bits(self, symbols: Int[np.ndarray, "sequence symbol"]) -> Float[np.ndarray, " sequence"]:
        """The loss of the true chain on each sequence: mean −log2 p(y_t | y_{t−1})."""
        return -np.log2(self.transition[symbols[:, :-1], symbols[:, 1:]]).mean(axis=1)
