"""Filtering in a hidden Markov model that every sequence brings along: the papers' task.

Transition and emission matrices are drawn fresh for every sequence and stand in its header, so that a network has to
learn the forward recursion itself and not one process. The matrices shown are rounded to a grid, and the exact beliefs
are computed from them as shown. Layout: `TRANS, T row by row, EMIT, E row by row, SEP`, then `OBS, o_t` K times.

Source: Paper I (arXiv 2512.22471), section on HMM filtering: S = O = 5, flat Dirichlet rows with a floor of 0.05, two
decimals, uniform initial state, K = 20, tests at K = 30 and 50. There a head of S outputs learns the exact posterior
("distil" here); here the states are ids of the one vocabulary, and sampled states are the labels by default.
"""

from dataclasses import dataclass
from math import gcd, lcm
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from interp.tunnel import Sequences

from .filtering import draw_chains, filter_states
from .hmm_layout import HiddenMarkovTask, ObservationLayout, Question
from .probability_grid import ProbabilityGrid


@dataclass(frozen=True)
class Chains:
    """Drawn chains with their own parameters; the matrices in steps of the grid."""

    transition: Int[np.ndarray, "sequence state state"]
    emission: Int[np.ndarray, "sequence state symbol"]
    states: Int[np.ndarray, "sequence step"]
    symbols: Int[np.ndarray, "sequence step"]

    def relabelled(
        self, state_labels: Int[np.ndarray, "sequence state"], symbol_labels: Int[np.ndarray, "sequence symbol"]
    ) -> "Chains":
        """The same chains after state i became `state_labels[i]` and symbol j `symbol_labels[j]` throughout."""
        rows = np.arange(len(self.states))[:, None, None]
        old_state, old_symbol = np.argsort(state_labels, axis=1), np.argsort(symbol_labels, axis=1)
        return Chains(
            self.transition[rows, old_state[:, :, None], old_state[:, None, :]],
            self.emission[rows, old_state[:, :, None], old_symbol[:, None, :]],
            np.take_along_axis(state_labels, self.states, axis=1),
            np.take_along_axis(symbol_labels, self.symbols, axis=1),
        )


@dataclass(frozen=True)
class HMM(HiddenMarkovTask):
    """Hidden states filtered from `K` symbols, with `S` states and `O` symbols and the parameters in the header.

    `predict` is `state` (at every symbol: the papers), `symbol` (at every marker: the symbol to come) or `both`, in
    two named slices of which `state` is the primary one. Probabilities are multiples of `grid`, none below `floor`.
    """

    predict: Question = "state"
    floor: float = 0.05
    grid: float = 0.01

    name: ClassVar[str] = "hmm"
    question: ClassVar[str] = "Does the network filter hidden states by a recursion whose parameters it has only read?"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.probability_grid.check("the hmm task", max(self.S, self.O))

    @property
    def probability_grid(self) -> ProbabilityGrid:
        return ProbabilityGrid(self.grid, self.floor)

    @property
    def layout(self) -> ObservationLayout:
        """Probability tokens first, then TRANS, EMIT, SEP, and from OBS on what all hidden Markov tasks have."""
        n_header = 3 + self.S * (self.S + self.O)
        return ObservationLayout(self.S, self.O, self.K, self.predict, self.probability_grid.n_levels + 3, n_header)

    def sample(self, rng: np.random.Generator, n: int) -> Sequences:
        return self.encode(self.draw(rng, n))

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        """Groups of `n_copies` sequences, at most S · O, that differ by cyclic shifts of states and symbols.

        Relabelling leaves the law of the parameters and of the chain as it is, so each sequence alone is an ordinary
        draw; in a full group every state is the label of every position equally often.
        """
        n_copies = min(n_copies, self.S * self.O)
        chains = self.draw(rng, -(-n // n_copies))
        repeated = Chains(*(np.repeat(part, n_copies, axis=0)[:n] for part in vars(chains).values()))
        state_shift, symbol_shift = (np.resize(shift, n)[:, None] for shift in _shifts(self.S, self.O, n_copies))
        return self.encode(
            repeated.relabelled((state_shift + np.arange(self.S)) % self.S, (symbol_shift + np.arange(self.O)) % self.O)
        )

    def draw(self, rng: np.random.Generator, n: int) -> Chains:
        """Parameters, states and symbols of `n` independent sequences."""
        grid = self.probability_grid
        transition, emission = (grid.draw(rng, (n, self.S, width)) for width in (self.S, self.O))
        states, symbols = draw_chains(
            rng, self.initial, grid.probabilities(transition), grid.probabilities(emission), (n, self.K)
        )
        return Chains(transition, emission, states, symbols)

    def encode(self, chains: Chains) -> Sequences:
        """The sequences that show these chains, with the exact beliefs."""
        grid, n = self.probability_grid, len(chains.states)
        process = grid.probabilities(chains.transition), grid.probabilities(chains.emission)
        filtered = filter_states(self.initial, *process, chains.symbols)
        windows = self.windowed(*process, chains.symbols)  # these readers know the whole header
        trans, emit, sep = (np.full((n, 1), self.layout.marker - 3 + i) for i in range(3))
        shown = [(steps - grid.least).reshape(n, -1) for steps in (chains.transition, chains.emission)]
        header = np.concatenate([trans, shown[0], emit, shown[1], sep], axis=1)
        return self.layout.encode(header, chains.states, chains.symbols, filtered, windows, self.name)


def _shifts(n_states: int, n_symbols: int, n_copies: int) -> tuple[Int[np.ndarray, " copy"], Int[np.ndarray, " copy"]]:
    """Pairs of cyclic shifts, none twice, that go through the states and through the symbols evenly."""
    copy = np.arange(n_copies)
    assert n_copies <= n_states * n_symbols == lcm(n_states, n_symbols) * gcd(n_states, n_symbols)
    return copy % n_states, (copy + copy // lcm(n_states, n_symbols)) % n_symbols
