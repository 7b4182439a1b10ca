"""Iterated permutation: where k steps lead from a start, with and without a scratchpad for the steps between.

All permutations that agree with the images shown are equally likely. With a scratchpad each answer is a single step;
without one the posterior of π^k(s) is a mean over the (V − R)! ways to fill in the hidden images.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.resampling import random_orders
from interp.tunnel import REQUIRED_UNITS, Sequences, Task

from ..validation import Conflict
from .bijection import exact_posterior
from .shipped_task import ShippedTask, in_turn

MOST_HIDDEN = 6
"""Images that may be hidden without a scratchpad: 720 ways to fill them in."""

Symbols = Int[np.ndarray, "sequence symbol"]
Posterior = Float[np.ndarray, "sequence asked symbol"]


@dataclass(frozen=True)
class IteratedPermutation(ShippedTask):
    """`depth` steps (K) of a permutation of `V` symbols, the images of `n_shown` of them (R) given in the prompt.

    Tokens: x1 π(x1) … xR π(xR) START s, then the answers but the last (`scratchpad`), or "2 steps", "3 steps" … in
    their places. Symbols are 0 … V−1 where their image follows, else V … 2V−1. Scored from s on.
    """

    V: int = 10
    n_shown: int = 8
    depth: int = 6
    scratchpad: bool = True

    name: ClassVar[str] = "permutation"
    question: ClassVar[str] = "Does the network follow a permutation for more steps than it has layers?"
    length_field: ClassVar[str] = "depth"
    symbols_field: ClassVar[str] = "V"
    shifted: ClassVar = (True, True, True)
    rules: ClassVar = {"V": 2, "n_shown": 0, "depth": 1}
    units: ClassVar[Mapping[str, str]] = {
        **REQUIRED_UNITS,
        "evidence": "images",
        "n_steps_asked": "steps",
        "is_way_shown": "boolean",
        "is_return": "boolean",
    }

    def conflicts(self) -> Iterator[Conflict]:
        found = f"n_shown = {self.n_shown} of V = {self.V} images"
        yield self.n_shown > self.V, found, f"Choose n_shown up to {self.V}."
        fix = f"Choose n_shown of {self.V - MOST_HIDDEN} or more: the posterior counts every way to fill them in."
        is_too_much = not self.scratchpad and self.n_hidden > MOST_HIDDEN
        yield is_too_much, f"{self.n_hidden} hidden images without a scratchpad", fix

    @property
    def n_hidden(self) -> int:
        """The number of images that the prompt does not show."""
        return self.V - self.n_shown

    @property
    def vocab_size(self) -> int:
        return 2 * self.V + (1 if self.scratchpad else self.depth)

    @property
    def n_positions(self) -> int:
        return 2 * self.n_shown + 1 + self.depth

    def lengthened(self, n_observations: int) -> Task:
        """The task over more steps; `UsageError` without a scratchpad, as their numbers have no token."""
        if not self.scratchpad:
            return Task.lengthened(self, n_observations)
        return super().lengthened(n_observations)

    def encode(self, symbols: Symbols, images: Symbols, start: Int[np.ndarray, " sequence"]) -> Sequences:
        """The sequences of these permutations, with the exact posterior; the first `n_shown` images are shown."""
        n, first_asked = len(start), 2 * self.n_shown + 1
        permutation = np.empty((n, self.V), dtype=np.int64)
        np.put_along_axis(permutation, symbols, images, axis=1)
        chain = np.column_stack([start, ways(permutation, start, self.depth)])  # [sequence, start and answers]
        pairs = in_turn(symbols, images + self.V)[:, : 2 * self.n_shown]
        written = chain[:, 1:-1] + self.V if self.scratchpad else 2 * self.V + np.arange(1, self.depth)
        written = np.broadcast_to(written, (n, self.depth - 1))
        tokens = np.column_stack([pairs, np.full(n, 2 * self.V), start + self.V, written])
        shown = self.shown_in(tokens)
        if self.scratchpad:
            posterior = exact_posterior(chain[:, :-1], chain[:, 1:], self.V, shown=shown)[0]
        else:
            posterior = answer_posterior(shown, start, self.depth)
        steps, scored = np.arange(1, self.depth + 1), first_asked + np.arange(self.depth)
        is_step_shown = np.take_along_axis(shown, chain[:, :-1], axis=1) >= 0
        columns = {
            "n_steps_asked": steps,
            "is_way_shown": np.logical_and.accumulate(is_step_shown, axis=1),
            "is_return": np.stack([(chain[:, :k] == chain[:, [k]]).any(axis=1) for k in steps], axis=1),
        }
        return self._sequences(
            tokens, scored, chain[:, 1:] + self.V, posterior, self.V + np.arange(self.V),
            self.n_shown + (steps - 1) * self.scratchpad, columns,
            windows={0: start_posterior(start, self.V, self.depth)},
        )  # fmt: skip

    def shown_in(self, tokens: Int[np.ndarray, "sequence pos"]) -> Symbols:
        """The images that the pairs of these sequences show, by symbol; −1 where they show none."""
        shown = np.full((len(tokens), self.V), -1)
        pairs = tokens[:, : 2 * self.n_shown]
        np.put_along_axis(shown, pairs[:, 0::2], pairs[:, 1::2] - self.V, axis=1)
        return shown

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        symbols, images = (random_orders(self.V, n, rng) for _ in range(2))
        return symbols, images, rng.integers(self.V, size=n)


def ways(shown: Symbols, start: Int[np.ndarray, " sequence"], n_steps: int) -> Int[np.ndarray, "sequence step"]:
    """Where the shown images lead from each start, step by step; −1 from the first hidden one on."""
    at, way = start, []
    for _ in range(n_steps):
        at = np.where(at >= 0, shown[np.arange(len(shown)), at], -1)
        way.append(at)
    return np.stack(way, axis=1)


def answer_posterior(shown: Symbols, start: Int[np.ndarray, " sequence"], depth: int) -> Posterior:
    """The posterior of π(s), π²(s), …, given the images `shown` (−1 where hidden, equally many in every sequence)."""
    (n, n_symbols), rows = shown.shape, np.arange(len(shown))
    symbols = np.arange(n_symbols)
    n_hidden = int((shown < 0).sum(axis=1).max(initial=0))
    hidden = np.argsort(shown >= 0, axis=1, kind="stable")[:, :n_hidden]
    is_used = (shown[:, :, None] == symbols).any(axis=1)
    free = np.argsort(is_used, axis=1, kind="stable")[:, :n_hidden]
    counts = np.zeros((n, depth, n_symbols))
    full = shown.copy()
    for order in permutations(range(n_hidden)):
        np.put_along_axis(full, hidden, free[:, order], axis=1)
        counts[rows[:, None], np.arange(depth), ways(full, start, depth)] += 1
    return counts / counts.sum(axis=2, keepdims=True)


def start_posterior(start: Int[np.ndarray, " sequence"], n_symbols: int, depth: int) -> Posterior:
    """The same given the start and the number of steps alone; all lengths of its cycle are equally likely."""
    steps = np.arange(1, depth + 1)
    n_divisors = (steps[:, None] % np.arange(1, n_symbols + 1) == 0).sum(axis=1)
    back = n_divisors / n_symbols
    is_start = start[:, None, None] == np.arange(n_symbols)
    return np.where(is_start, back[:, None], (1 - back)[:, None] / (n_symbols - 1))
