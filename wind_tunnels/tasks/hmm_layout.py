"""How hidden Markov tasks show their symbols and what they ask: `[OBS, o_1, OBS, o_2 .. OBS, o_K]` behind a header.

After each symbol the question can be the hidden state behind it (slice `state`), at each marker the symbol that comes
next (slice `symbol`). One vocabulary serves both: what the header needs, the marker, the symbols, and one id for every
state, which is only ever an answer.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from interp.information import entropy_bits
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import check_sizes, check_words
from .filtering import WINDOWS, Filtered, filter_window
from .shipped_task import ShippedTask, required_columns

Question = Literal["state", "symbol", "both"]


@dataclass(frozen=True)
class ObservationLayout:
    """Token ids and positions: the marker is `marker`, symbols and states follow it, `n_header` tokens come first."""

    n_states: int
    n_symbols: int
    n_observations: int
    predict: Question
    marker: int
    n_header: int

    @property
    def first_symbol(self) -> int:
        return self.marker + 1

    @property
    def first_state(self) -> int:
        return self.first_symbol + self.n_symbols

    @property
    def vocab_size(self) -> int:
        return self.first_state + self.n_states

    @property
    def n_positions(self) -> int:
        return self.n_header + 2 * self.n_observations

    def encode(
        self,
        header: Int[np.ndarray, "sequence header"],
        states: Int[np.ndarray, "sequence step"],
        symbols: Int[np.ndarray, "sequence step"],
        filtered: Filtered,
        windows: Mapping[int, Filtered],
        domain: str,
    ) -> Sequences:
        """The sequences that show these symbols, and what is asked of them.

        `windows` are the beliefs of readers who see the last symbols alone, by how many these are.
        `evidence` counts the observations that the posterior rests on: the symbol just read is one of them.
        """
        n, n_steps = symbols.shape
        ids = self.first_symbol + np.arange(self.n_symbols + self.n_states)
        body = _interleave(np.full_like(symbols, self.marker), self.first_symbol + symbols)  # [sequence, pos]
        scored = self.n_header + np.arange(2 * n_steps)
        posterior = _answers(filtered)
        belief = _interleave(filtered.before, filtered.after)  # [sequence, scored, state]
        columns = {
            **required_columns(scored, (1 + np.arange(2 * n_steps)) // 2, posterior),
            "belief_entropy_bits": entropy_bits(belief),
        }
        sequences = Sequences(
            tokens=np.concatenate([header, body], axis=1),
            scored=scored,
            targets=_interleave(self.first_symbol + symbols, self.first_state + states),
            posterior=posterior,
            slice_ids=np.roll(ids, self.n_states),
            columns=columns,
            domain=np.full(n, domain),
            belief=belief,
            outcome_slice=np.repeat(["state", "symbol"], [self.n_states, self.n_symbols]),
            scored_slice=np.tile(["symbol", "state"], n_steps),
            windows={w: _answers(seen) for w, seen in windows.items()},
        )
        return sequences if self.predict == "both" else sequences.only(self.predict)


@dataclass(frozen=True)
class HiddenMarkovTask(ShippedTask):
    """What both hidden Markov tasks have in common: `S` states, `O` symbols, `K` observations, a uniform start."""

    S: int = 5
    O: int = 5  # noqa: E741 (the papers' letter)
    K: int = 20

    units: ClassVar[Mapping[str, str]] = {**REQUIRED_UNITS, "belief_entropy_bits": "bits"}
    length_field: ClassVar[str] = "K"

    def __post_init__(self) -> None:
        check_sizes(f"the {self.name} task", vars(self), {"S": 2, "O": 2, "K": 1})
        check_words(f"the {self.name} task", self)

    @property
    @abstractmethod
    def layout(self) -> ObservationLayout:
        """Token ids and positions."""

    @property
    def vocab_size(self) -> int:
        return self.layout.vocab_size

    @property
    def n_positions(self) -> int:
        return self.layout.n_positions

    @property
    def initial(self) -> Float[np.ndarray, " state"]:
        """p(s_1)."""
        return np.full(self.S, 1.0 / self.S)

    def windowed(
        self,
        transition: Float[np.ndarray, "#sequence state state"],
        emission: Float[np.ndarray, "#sequence state symbol"],
        symbols: Int[np.ndarray, "sequence step"],
    ) -> dict[int, Filtered]:
        """The beliefs of readers of the last symbols; none where a transition is impossible.

        There the chain may fall apart, and have no stationary distribution to begin with.
        """
        if not transition.all():
            return {}
        return {w: filter_window(self.initial, transition, emission, symbols, w) for w in WINDOWS}


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
