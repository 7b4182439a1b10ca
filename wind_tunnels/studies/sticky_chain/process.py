"""The sticky Markov chain of Paper II: what a single attention head is trained on to compare learning rules.

Symbols stand on a circle. A chain stays where it is with the self-transition probability p, else it moves, the more
rarely the farther: with weight 1 / circular distance. A head reads x_t = μ(y_{t−1}) + ε and predicts y_t; μ and ε are
standard normal, and μ is the same for all sequences. The transitions are doubly stochastic, so the chain is uniform
over symbols and H(Y_t | Y_{t−1}) is the entropy of any row: nobody who sees the past predicts better on average.

Source: Paper II (arXiv 2512.22473), section 5.2. Its code puts `self_prob` into a row before it normalises the row and
adds `self_prob` once more: 0.3 becomes 0.350. That is `normalised="published"`; `"exact"` is a chain that stays with
the probability named.
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
        """H(Y_t | Y_{t−1}), the least mean loss; 2.639 bits (1.829 nats) at the published sizes."""
        return float(entropy_bits(self.transition).mean())

    def sample(self, rng: np.random.Generator, n_positions: int) -> Walk:
        """One sequence of `n_positions` predictions, from the uniform start: inputs x_t, and y_t with the first y_0."""
        alike = np.eye(self.n_symbols)[None]
        start = np.full(self.n_symbols, 1 / self.n_symbols)
        _, symbols = draw_chains(rng, start, self.transition[None], alike, (1, n_positions + 1))
        noise = rng.standard_normal((1, n_positions, N_FEATURES))
        return self.means[symbols[:, :-1]] + noise, symbols

    @property
    def means(self) -> Float[np.ndarray, "symbol feature"]:
        """μ: where each symbol lies among the inputs, the same for every sequence."""
        return np.random.default_rng(0).standard_normal((self.n_symbols, N_FEATURES))

    def surprise_bits(self, symbols: Int[np.ndarray, "sequence symbol"]) -> Float[np.ndarray, " sequence"]:
        """Mean −log2 p(y_t | y_{t−1}) along each sequence: what the true chain loses on these very symbols."""
        return -np.log2(self.transition[symbols[:, :-1], symbols[:, 1:]]).mean(axis=1)
