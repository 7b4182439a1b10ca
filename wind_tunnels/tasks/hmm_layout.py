"""How hidden Markov tasks show their symbols and what they ask: `[OBS, o_1, OBS, o_2 .. OBS, o_K]` behind a header.

One vocabulary serves both questions: what the header needs, the marker, the symbols, and one id for every state, which
is only ever an answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import FRACTION, POSITIVE, Conflict
from .filtering import WINDOWS, Emission, Filtered, Steps, Transition, filter_states, filter_window
from .probability_grid import ProbabilityGrid
from .shipped_task import ShippedTask

Question = Literal["state", "symbol", "both"]


@dataclass(frozen=True)
class HiddenMarkovTask(ShippedTask):
    """What both hidden Markov tasks have in common: `S` states, `O` symbols, `K` observations, a uniform start.

    `predict` is `state` (at every symbol: the papers), `symbol` (at every marker: the symbol to come) or `both`, in
    two named slices of which `state` is the primary one. Probabilities are multiples of `grid`, none below `floor`.
    `stay` is the share of every transition row that is moved to the diagonal before rounding: the higher, the longer
    the past matters. The token id of OBS is `marker`, those of symbols and states follow it; `n_header` tokens come
    first.
    """

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
        """The sequences that show these symbols, what is asked of them, and the exact beliefs.

        Readers of the last symbols know the parameters too. There are none where a transition is impossible: there
        the chain may fall apart, and have no stationary distribution to begin with.
        `evidence` counts the observations that the posterior rests on: the symbol just read is one of them.
        """
        n_steps = symbols.shape[1]
        process = self.initial, transition, emission
        filtered = filter_states(*process, symbols)
        windows = {w: filter_window(*process, symbols, w) for w in WINDOWS} if transition.all() else {}
        ids = self.marker + 1 + np.arange(self.O + self.S)
        shown = ids[symbols]
        belief = _interleave(filtered.before, filtered.after)  # [sequence, scored, state]
        sequences = self._sequences(
            np.concatenate([header, _interleave(np.full_like(symbols, self.marker), shown)], axis=1),
            self.n_header + np.arange(2 * n_steps), _interleave(shown, ids[self.O :][states]), _answers(filtered),
            np.roll(ids, self.S), (1 + np.arange(2 * n_steps)) // 2, {"belief_entropy_bits": entropy_bits(belief)},
            belief=belief, windows={w: _answers(seen) for w, seen in windows.items()},
            outcome_slice=np.repeat(["state", "symbol"], [self.S, self.O]),
            scored_slice=np.tile(["symbol", "state"], n_steps),
        )  # fmt: skip
        return sequences if self.predict == "both" else sequences.only(self.predict)


def _answers(filtered: Filtered) -> Float[np.ndarray, "sequence scored outcome"]:
    """The symbol to come at every marker, the state behind it at every symbol; outcomes are states, then symbols."""
    n, n_steps, n_states = filtered.after.shape
    answers = np.zeros((n, 2 * n_steps, n_states + filtered.symbol.shape[2]))
    answers[:, 0::2, n_states:] = filtered.symbol
    answers[:, 1::2, :n_states] = filtered.after
    return answers


def _interleave(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """a1 b1 a2 b2 … along the axis of steps."""
    n, n_steps = first.shape[:2]
    return np.stack([first, second], axis=2).reshape(n, 2 * n_steps, *first.shape[2:])
