"""Filtering: beliefs about a hidden Markov chain's state and next symbol after each observation.

With transition matrix T, emission matrix E and initial distribution π the forward recursion is exact:

    b_1(s) = π(s),   b_{t+1}(s) = Σ_r a_t(r) T[r, s]          p(s_t | o_1 .. o_{t−1}), before the symbol
    a_t(s) = b_t(s) E[s, o_t] / Σ_r b_t(r) E[r, o_t]          p(s_t | o_1 .. o_t), after it
    p(o_t | o_1 .. o_{t−1}) = Σ_s b_t(s) E[s, o_t]

A window reader sees the last w symbols alone: the recursion starts w symbols back from the stationary distribution, or
from π at the start of the sequence. Matrices have a leading axis of one where all sequences share them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

WINDOWS = (1, 2, 3)
"""Numbers of symbols that the window readers see."""

Transition = Float[np.ndarray, "#sequence state state"]
Emission = Float[np.ndarray, "#sequence state symbol"]
Steps = Int[np.ndarray, "sequence step"]


@dataclass(frozen=True)
class Filtered:
    """The exact beliefs along a sequence: over states `before` and `after` each symbol, and over that `symbol`."""

    before: Float[np.ndarray, "sequence step state"]
    after: Float[np.ndarray, "sequence step state"]
    symbol: Float[np.ndarray, "sequence step symbol"]


def filter_states(
    initial: Float[np.ndarray, " state"], transition: Transition, emission: Emission, symbols: Steps
) -> Filtered:
    """The forward recursion; `ValueError` for a symbol of probability 0."""
    n_steps = symbols.shape[1]
    likelihood = _likelihood(emission, symbols)
    before, after = np.empty_like(likelihood), np.empty_like(likelihood)
    belief = np.broadcast_to(initial, likelihood[:, 0].shape)
    for step in range(n_steps):
        before[:, step] = belief  # [sequence, state]
        joint = belief * likelihood[:, step]
        evidence = joint.sum(axis=1, keepdims=True)
        if not evidence.all():
            raise ValueError(f"at step {step} a symbol comes that the parameters give no probability")
        after[:, step] = joint / evidence
        belief = (after[:, step, None, :] @ transition)[:, 0]
    return Filtered(before, after, before @ emission)


def filter_window(
    initial: Float[np.ndarray, " state"], transition: Transition, emission: Emission, symbols: Steps, window: int
) -> Filtered:
    """The beliefs of a reader of the last `window` symbols; every state must be reachable from every other."""
    n_steps = symbols.shape[1]
    likelihood = _likelihood(emission, symbols)
    after = np.broadcast_to(stationary(transition)[:, None], likelihood.shape)
    for lag in reversed(range(min(window, n_steps))):  # after[:, t] takes in the symbol t − lag
        before = after @ transition
        before[:, lag] = initial  # the symbol taken in is the first of the sequence
        joint = before[:, lag:] * likelihood[:, : n_steps - lag]
        before[:, lag:] = joint / joint.sum(axis=2, keepdims=True)
        after = before
    before = np.empty_like(after)
    before[:, 0], before[:, 1:] = initial, (after @ transition)[:, :-1]
    return Filtered(before, after, before @ emission)


def stationary(transition: Float[np.ndarray, "chain state state"]) -> Float[np.ndarray, "chain state"]:
    """The stationary distribution: π (I − T + 1) = (1 .. 1), with a matrix 1 of ones."""
    n_states = transition.shape[-1]
    matrix = np.eye(n_states) - transition.swapaxes(1, 2) + 1.0
    return np.linalg.solve(matrix, np.ones((len(transition), n_states, 1)))[..., 0]


def _likelihood(emission: Emission, symbols: Steps) -> Float[np.ndarray, "sequence step state"]:
    rows = np.arange(len(symbols))[:, None] if len(emission) > 1 else np.zeros((1, 1), dtype=np.int64)
    return emission.swapaxes(1, 2)[rows, symbols]


def draw_chains(
    rng: np.random.Generator, initial: Float[np.ndarray, " state"], transition: Transition, emission: Emission,
    size: tuple[int, int],
) -> tuple[Steps, Steps]:  # fmt: skip
    """States and symbols of `size` = (sequences, steps), by inversion of the cumulative probabilities."""
    n, n_steps = size
    uniform = rng.random((2, n, n_steps))
    to_state, to_symbol = (np.cumsum(matrix, axis=2)[..., :-1] for matrix in (transition, emission))
    states = np.empty(size, dtype=np.int64)
    states[:, 0] = np.searchsorted(np.cumsum(initial)[:-1], uniform[0, :, 0], side="right")
    rows = np.arange(n) if len(transition) > 1 else np.zeros(n, dtype=np.int64)
    for step in range(1, n_steps):
        states[:, step] = (uniform[0, :, step, None] >= to_state[rows, states[:, step - 1]]).sum(axis=1)
    rows = np.arange(n) if len(emission) > 1 else np.zeros(n, dtype=np.int64)
    symbols = (uniform[1, ..., None] >= to_symbol[rows[:, None], states]).sum(axis=2)
    return states, symbols
