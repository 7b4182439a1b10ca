"""Recurrence: a sequence is a program, x[t + 1] = a x[t] + b mod p with a, b and x[0] uniform, or noise.

After k tokens of which k − 1 steps follow one (a, b), the Bayes factor for the program is c p^(k − 3), with c the
number of pairs (a, b) that remain: 1, or p where x[0] = x[1]. The answer mixes both predictions. With symbols
relabelled in every sequence only the shape of a program is visible: a cycle of the order of a, of p steps (a = 1), of
one, or one step into a fixed point (a = 0); the answer sums over the shapes.

Source: the authors' `construction_boundary` experiments (2026; p = 17, 16 tokens).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, gammaln

from interp.statistics.resampling import random_orders
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import Conflict, is_prime
from .shipped_task import ShippedTask

Symbols = Literal["integers", "fixed", "fresh"]
Prefixes = Literal["all", "trained", "held_out"]
Values = Int[np.ndarray, "sequence token"]

Inferred = tuple[Float[np.ndarray, "sequence seen"], Float[np.ndarray, "sequence seen next"]]


N_BUCKETS = 5
"""Buckets of three-token prefixes, of which the last is held out."""

_MOST_NATS = 700
"""The Bayes factors of fresh symbols reach p ** length, which has to be a float."""


@dataclass(frozen=True)
class Recurrence(ShippedTask):
    """`length` values modulo the prime `p`, each predicted from those before it; the last is an answer only.

    Values are the ids 0 … p − 1, START is p. `symbols` are `integers`, `fixed` (relabelled once, the same in every
    sequence) or `fresh` (relabelled in every sequence). `prefixes` keeps the sequences whose first three values are in
    one of four buckets (`trained`), or in the fifth (`held_out`).
    """

    p: int = 7
    length: int = 16
    symbols: Symbols = "integers"
    prefixes: Prefixes = "all"

    name: ClassVar[str] = "recurrence"
    question: ClassVar[str] = "Does the network infer a computation, beyond the positions that were trained?"
    length_field: ClassVar[str] = "length"
    rules: ClassVar = {"p": 3, "length": 4}
    units: ClassVar[Mapping[str, str]] = {**REQUIRED_UNITS, "is_program": "boolean", "p_program": "probability"}

    def conflicts(self) -> Iterator[Conflict]:
        yield not is_prime(self.p), f"p = {self.p}", "It is a prime number: 7, 11, 17."
        is_fresh, most = self.symbols == "fresh", int(_MOST_NATS / np.log(self.p))
        found = f"prefixes = {self.prefixes} of symbols that mean something else in every sequence"
        yield is_fresh and self.prefixes != "all", found, "Leave prefixes out, or take symbols=integers."
        found = f"length = {self.length} of fresh symbols"
        yield is_fresh and self.length > most, found, f"Choose length up to {most}."

    @property
    def vocab_size(self) -> int:
        return self.p + 1

    @property
    def n_positions(self) -> int:
        return self.length

    def sample_orbits(self, rng: np.random.Generator, n: int, n_copies: int) -> Sequences:
        """Groups of up to p sequences that differ by a shift of all values, if `prefixes` allows it."""
        n_copies = min(n_copies, self.p) if self.prefixes == "all" else 1
        values, is_program = (np.repeat(part, n_copies, axis=0)[:n] for part in self._draw(rng, -(-n // n_copies)))
        values = (values + (np.arange(n) % n_copies * self.p // n_copies)[:, None]) % self.p
        if self.symbols == "fresh":
            values = np.take_along_axis(random_orders(self.p, n, rng), values, axis=1)
        return self.encode(values, is_program)

    def encode(self, values: Values, is_program: Bool[np.ndarray, " sequence"]) -> Sequences:
        """The sequences of these values (of symbols, where they are `fresh`), with the exact posterior."""
        log_ratio, of_program = (programs_of_symbols if self.symbols == "fresh" else programs)(values, self.p)
        p_program = expit(log_ratio)[..., None]
        posterior = p_program * of_program + (1.0 - p_program) / self.p
        if self.prefixes != "all":
            p_program[:, :3], posterior[:, :3] = self._restricted_beginning(values)
        if self.symbols == "fixed":
            label = np.random.default_rng(self.p).permutation(self.p)
            values, posterior = label[values], posterior[..., np.argsort(label)]
        scored = np.arange(self.n_positions)
        tokens = np.concatenate([np.full_like(values[:, :1], self.p), values[:, :-1]], axis=1)
        return self._sequences(
            tokens, scored, values, posterior, np.arange(self.p), scored,
            {"is_program": is_program[:, None], "p_program": p_program[..., 0]},
            belief=np.concatenate([p_program, 1.0 - p_program], axis=-1),
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[Values, Bool[np.ndarray, " sequence"]]:
        """Values, and which sequences are programs; excluded prefixes are drawn again."""
        values, is_program = rng.integers(self.p, size=(n, self.length)), rng.random(n) < 0.5
        a, b = rng.integers(self.p, size=(2, n))
        for t in range(1, self.length):
            values[:, t] = np.where(is_program, (a * values[:, t - 1] + b) % self.p, values[:, t])
        again = np.flatnonzero(~self._is_kept()[tuple(values[:, :3].T)])
        if len(again):
            values[again], is_program[again] = self._draw(rng, len(again))
        return values, is_program

    def _is_kept(self) -> Bool[np.ndarray, "first second third"]:
        code = np.arange(self.p**3, dtype=np.uint64).reshape((self.p,) * 3)
        is_held_out = (code * np.uint64(2654435761) % np.uint64(2**32) >> np.uint64(16)) % N_BUCKETS == N_BUCKETS - 1
        return np.full(code.shape, True) if self.prefixes == "all" else is_held_out == (self.prefixes == "held_out")

    def _restricted_beginning(self, values: Values) -> tuple[np.ndarray, np.ndarray]:
        """Posteriors of the program and of the next value after 0, 1 and 2 values, given that the prefix was kept."""
        p, diagonal, (first, second) = self.p, np.arange(self.p), values[:, :2].T
        program = np.full((p, p, p), p**-3.0)
        program[diagonal, diagonal] = 0.0
        program[diagonal, diagonal, diagonal] = p**-2.0  # x[0] = x[1] fixes x[2], and leaves p pairs (a, b)
        both = np.stack([program, np.full_like(program, p**-3.0)]) * self._is_kept()
        at_once = np.broadcast_to(both.sum(axis=(2, 3))[:, None], (2, len(values), p))
        joint = np.stack([at_once, both.sum(axis=3)[:, first], both[:, first, second]], axis=2)  # [class, n, k, next]
        total = joint.sum(axis=(0, 3))[..., None]
        return joint[0].sum(axis=-1, keepdims=True) / total, joint.sum(axis=0) / total


def programs(values: Values, p: int) -> Inferred:
    """After 0, 1, 2 … values: the log Bayes factor of programs over noise, and the programs' prediction."""
    step, seen = np.diff(values, axis=1) % p, np.arange(values.shape[1])
    inverse = np.array([0, *(pow(d, -1, p) for d in range(1, p))])
    is_constant = step[:, :1] == 0
    a = step[:, 1:2] * inverse[step[:, :1]] % p  # 0 of a constant sequence: it stays where it is
    onward = np.empty_like(values)  # from two values before: x + a (x − the one before)
    onward[:, 2:] = (values[:, 1:-1] + a * step[:, :-1]) % p
    follows = np.logical_and.accumulate(onward[:, 2:] == values[:, 2:], axis=1)
    is_consistent = np.concatenate([np.full((len(values), 3), True), follows[:, :-1]], axis=1)
    log_ratio = np.where(seen < 3, 0.0, np.log(np.where(is_constant, p, 1)) + (seen - 3) * np.log(p))
    predicted = np.full((*values.shape, p), 1.0 / p)
    predicted[:, 2:] = onward[:, 2:, None] == np.arange(p)
    predicted[~is_constant[:, 0], 2] = 1.0 / p
    return np.where(is_consistent, log_ratio, -np.inf), predicted


def shapes(p: int) -> dict[tuple[int, int], float]:
    """The probability of a program with `tail` steps before a cycle of `period`."""
    found = {(0, 1): 1.0 / p, (1, 1): (p - 1) / p**2, (0, p): (p - 1) / p**2}
    for a in range(2, p):
        order = next(k for k in range(1, p) if pow(a, k, p) == 1)
        found[0, order] = found.get((0, order), 0.0) + (p - 1) / p**2
    return found


def programs_of_symbols(symbols: Values, p: int) -> Inferred:
    """The same for relabelled symbols: a sum over the shapes."""
    seen = np.arange(symbols.shape[1])
    first = (symbols[:, :, None] == symbols[:, None, :]).argmax(axis=2)  # where each symbol came first
    is_new = (np.cumsum(symbols[..., None] == np.arange(p), axis=1) == 0)[:, :-1]
    is_new = np.concatenate([np.full((len(symbols), 1, p), True), is_new], axis=1)
    new = is_new / np.maximum(is_new.sum(axis=2, keepdims=True), 1)
    weight, answer = np.zeros(symbols.shape), np.zeros((*symbols.shape, p))
    for (tail, period), probability in shapes(p).items():
        n_distinct = tail + period
        source = np.where(seen < n_distinct, seen, tail + (seen - tail) % period)
        agrees = np.logical_and.accumulate(first == source, axis=1)
        n_chosen = np.minimum(seen, n_distinct)
        ratio = probability * np.exp(gammaln(p - n_chosen + 1) - gammaln(p + 1) + seen * np.log(p))
        here = ratio * np.concatenate([np.ones((len(symbols), 1)), agrees[:, :-1]], axis=1)
        weight += here
        answer += here[..., None] * np.where(
            (seen < n_distinct)[:, None], new, symbols[:, source, None] == np.arange(p)
        )
    with np.errstate(divide="ignore"):
        return np.log(weight), np.divide(answer, weight[..., None], out=answer, where=weight[..., None] > 0)
