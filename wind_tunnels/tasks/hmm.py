"""Filtering in a hidden Markov model whose parameters are in the prompt: the papers' task.

Layout: `TRANS, T row by row, EMIT, E row by row, SEP`, then `OBS, o_t` K times. The matrices are rounded to a grid, and
beliefs are computed from them as shown. A row is shown entry by entry, or as one token per possible row and place. The
vocabulary is the header, the marker OBS, the symbols, and one id for every state, which is only an answer.

Source: Paper I (arXiv 2512.22471), section on HMM filtering, where a head of S outputs learns the exact posterior.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import FRACTION, POSITIVE, Conflict
from .filtering import WINDOWS, Emission, Filtered, Steps, Transition, draw_chains, filter_states, filter_window
from .probability_grid import ProbabilityGrid
from .shipped_task import ShippedTask, in_turn

MOST_ROW_IDS = 10_000
"""The most ids in a header of rows: each is an embedding to be learnt."""

Question = Literal["state", "symbol", "both"]


@dataclass(frozen=True)
class HiddenMarkovTask(ShippedTask):
    """The base of the hidden Markov tasks, with the fields of `HMM`; ids of symbols and states follow `marker`."""

    S: int = 5
    O: int = 5  # noqa: E741 (the papers' letter)
    K: int = 20
    predict: Question = "state"
    floor: float = 0.05
    grid: float = 0.01
    stay: float = 0.0

    units: ClassVar[Mapping[str, str]] = {**REQUIRED_UNITS, "belief_entropy_bits": "bits"}
    length_field: ClassVar[str] = "K"
    rules: ClassVar = {"S": 2, "O": 2, "K": 1, "stay": FRACTION, "grid": POSITIVE, "floor": FRACTION}

    def conflicts(self) -> Iterator[Conflict]:
        yield from self.probability_grid.conflicts(max(self.S, self.O))

    @property
    def probability_grid(self) -> ProbabilityGrid:
        return ProbabilityGrid(self.grid, self.floor)

    def draw_matrices(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """`n` transition matrices and `n` emission matrices, in steps of the grid."""
        draw = self.probability_grid.draw
        return draw(rng, (n, self.S, self.S), stay=self.stay), draw(rng, (n, self.S, self.O))

    @property
    def marker(self) -> int:
        return 0

    @property
    def n_header(self) -> int:
        return 0

    @property
    def vocab_size(self) -> int:
        return self.marker + 1 + self.O + self.S

    @property
    def n_positions(self) -> int:
        return self.n_header + 2 * self.K

    @property
    def initial(self) -> Float[np.ndarray, " state"]:
        """p(s_1)."""
        return np.full(self.S, 1.0 / self.S)

    def sequences(
        self, header: Int[np.ndarray, "sequence header"], states: Steps, symbols: Steps, transition: Transition,
        emission: Emission,
    ) -> Sequences:  # fmt: skip
        """The sequences that show these symbols, with targets and exact beliefs."""
        n_steps = symbols.shape[1]
        process = self.initial, transition, emission
        filtered = filter_states(*process, symbols)
        # with impossible transitions the stationary distribution may not be unique
        windows = {w: filter_window(*process, symbols, w) for w in WINDOWS} if transition.all() else {}
        ids = self.marker + 1 + np.arange(self.O + self.S)
        shown = ids[symbols]
        belief = in_turn(filtered.before, filtered.after)  # [sequence, scored, state]
        sequences = self._sequences(
            np.concatenate([header, in_turn(np.full_like(symbols, self.marker), shown)], axis=1),
            self.n_header + np.arange(2 * n_steps), in_turn(shown, ids[self.O :][states]), _answers(filtered),
            np.roll(ids, self.S), (1 + np.arange(2 * n_steps)) // 2, {"belief_entropy_bits": entropy_bits(belief)},
            belief=belief, windows={w: _answers(seen) for w, seen in windows.items()},
            outcome_slice=np.repeat(["state", "symbol"], [self.S, self.O]),
            scored_slice=np.tile(["symbol", "state"], n_steps),
        )  # fmt: skip
        return sequences if self.predict == "both" else sequences.only(self.predict)


@dataclass(frozen=True)
class HMM(HiddenMarkovTask):
    """Hidden states filtered from `K` symbols, with `S` states and `O` symbols and the parameters in the header.

    `predict` is `state` (at every symbol, as in the papers), `symbol` (the next one) or `both`. Probabilities are
    multiples of `grid`, none below `floor`; `stay` is the share of each transition row moved to the diagonal, so that
    the past matters longer. `header` has one token per matrix entry (the papers) or per row, which needs a coarse grid.
    """

    header: Literal["entries", "rows"] = "entries"

    name: ClassVar[str] = "hmm"
    question: ClassVar[str] = "Does the network filter hidden states by a recursion whose parameters it has only read?"

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        n_ids = sum(self._rows_by_place)
        found = f"header=rows, where a token a row needs {n_ids:,} ids, more than {MOST_ROW_IDS:,}"
        fix = "Choose a coarser grid or a higher floor, for example grid=0.1 floor=0.1, or header=entries."
        yield self.header == "rows" and n_ids > MOST_ROW_IDS, found, fix

    @property
    def marker(self) -> int:
        """The id of OBS."""
        return 3 + (sum(self._rows_by_place) if self.header == "rows" else self.probability_grid.n_levels)

    @property
    def n_header(self) -> int:
        """The number of header tokens."""
        return 3 + self.S * (2 if self.header == "rows" else self.S + self.O)

    @property
    def _rows_by_place(self) -> list[int]:
        """The number of possible rows at each of the 2 S places of a header of rows."""
        return [self.probability_grid.n_rows(width) for width in (self.S, self.O) for _ in range(self.S)]

    @property
    def most_copies(self) -> int:
        """The number of cyclic shifts of states and symbols, which are equally likely."""
        return self.S * self.O

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        matrices = self.draw_matrices(rng, n)
        transition, emission = map(self.probability_grid.probabilities, matrices)
        return *matrices, *draw_chains(rng, self.initial, transition, emission, (n, self.K))

    def relabelled(self, copy, shift, transition, emission, states, symbols) -> tuple[np.ndarray, ...]:
        """The sequences under distinct pairs of cyclic shifts that cover states and symbols evenly."""
        state_shift, symbol_shift = copy[:, None], (copy + copy // lcm(self.S, self.O))[:, None]
        new_state, new_symbol = (np.arange(self.S) + state_shift) % self.S, (np.arange(self.O) + symbol_shift) % self.O
        old_state, old_symbol = np.argsort(new_state, axis=1), np.argsort(new_symbol, axis=1)
        rows = np.arange(len(copy))[:, None, None]
        return (
            transition[rows, old_state[:, :, None], old_state[:, None, :]],
            emission[rows, old_state[:, :, None], old_symbol[:, None, :]],
            np.take_along_axis(new_state, states, axis=1),
            np.take_along_axis(new_symbol, symbols, axis=1),
        )

    def encode(
        self, transition: Int[np.ndarray, "sequence state state"], emission: Int[np.ndarray, "sequence state symbol"],
        states: Int[np.ndarray, "sequence step"], symbols: Int[np.ndarray, "sequence step"],
    ) -> Sequences:  # fmt: skip
        """The sequences of these chains and matrices, in steps of the grid, with the exact beliefs."""
        trans, emit, sep = (np.full((len(states), 1), self.marker - 3 + i) for i in range(3))
        shown, grid = self._shown(transition, emission), self.probability_grid
        header = np.concatenate([trans, shown[0], emit, shown[1], sep], axis=1)
        process = grid.probabilities(transition), grid.probabilities(emission)
        return self.sequences(header, states, symbols, *process)

    def _shown(self, *matrices: np.ndarray) -> list[Int[np.ndarray, "sequence token"]]:
        grid = self.probability_grid
        if self.header == "entries":
            return [np.concatenate([row - grid.least for row in steps.swapaxes(0, 1)], axis=1) for steps in matrices]
        first = np.cumsum([0, *self._rows_by_place])[:-1].reshape(2, self.S)  # [matrix, row]
        return [ids + grid.rank(steps) for ids, steps in zip(first, matrices, strict=True)]


def _answers(filtered: Filtered) -> Float[np.ndarray, "sequence scored outcome"]:
    """The next symbol at every marker, the hidden state at every symbol; outcomes are states, then symbols."""
    n, n_steps, n_states = filtered.after.shape
    answers = np.zeros((n, 2 * n_steps, n_states + filtered.symbol.shape[2]))
    answers[:, 0::2, n_states:] = filtered.symbol
    answers[:, 1::2, :n_states] = filtered.after
    return answers
