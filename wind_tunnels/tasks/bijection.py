"""Bijection elimination: which values are still possible for a key, given the pairs seen so far.

Without replacement (the papers' configuration) the entropy is a function of the position; with it, recall is needed
too.

Source: Paper I (arXiv 2512.22471), section on bijection elimination. Labels are at the keys; at the values, networks
would learn to copy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.resampling import random_orders
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import Conflict
from .shipped_task import ShippedTask, earlier, in_turn

Pairs = Int[np.ndarray, "sequence asked"]
"""The keys of the pairs, or their values."""


@dataclass(frozen=True)
class Bijection(ShippedTask):
    """Elimination, and with replacement recall too, over a bijection of `V` symbols shown in `L` pairs.

    `layout` is `sepvocab` (keys 0 .. V−1, values V .. 2V−1; k1 v1 k2 v2 .. kL, scored at every key) or `paired` (one
    vocabulary; k1 v1 .. kL vL q, where the query q is a key shown before). `key_pool` draws the keys of a sequence from
    a random subset of that size, so that keys repeat more often.
    """

    V: int = 10
    L: int = 12
    replacement: bool = True
    layout: Literal["sepvocab", "paired"] = "sepvocab"
    key_pool: int | None = None

    name: ClassVar[str] = "bijection"
    question: ClassVar[str] = "Does the network rule out the values that are taken, and recall those it has seen?"
    length_field: ClassVar[str] = "L"
    symbols_field: ClassVar[str] = "V"
    shifted: ClassVar = (False, True)  # in a full orbit each value is the answer to every unseen key equally often
    rules: ClassVar = {"V": 2, "L": 1, "key_pool": 1}
    units: ClassVar[Mapping[str, str]] = {
        **REQUIRED_UNITS,
        "evidence": "pairs",
        "n_distinct": "keys",
        "is_repeat": "boolean",
    }

    def conflicts(self) -> Iterator[Conflict]:
        n_keys = self.V if self.key_pool is None else self.key_pool
        yield n_keys > self.V, f"key_pool = {n_keys} of V = {self.V} keys", f"Choose key_pool from 1 to {self.V}."
        found, fix = f"L = {self.L} distinct keys out of {n_keys}", f"Choose L up to {n_keys}, or replacement=True."
        yield not self.replacement and n_keys < self.L, found, fix

    @property
    def vocab_size(self) -> int:
        return 2 * self.V if self.layout == "sepvocab" else self.V

    @property
    def n_positions(self) -> int:
        return 2 * self.L - 1 if self.layout == "sepvocab" else 2 * self.L + 1

    def curriculum(self) -> tuple["Bijection", ...]:
        """With replacement, stages from three keys to all `V`; else one stage."""
        if not self.replacement or self.key_pool is not None or self.V <= 3:
            return (self,)
        return (*(replace(self, key_pool=n_keys) for n_keys in range(3, self.V)), self)

    def with_copied_context(self, sequences: Sequences, n_shown: int, n_copies: int) -> Sequences:
        """The key after the first `n_shown` pairs, shown `n_copies` times; `UsageError` if that is impossible."""
        n_pairs = n_shown * n_copies
        if not self.replacement:
            return super().with_copied_context(sequences, n_shown, n_copies)
        if min(n_shown, n_copies) < 1 or 2 * n_pairs + 1 > self.n_positions:
            found = f"{n_shown} pairs shown {n_copies} times, in sequences of {self.n_positions} positions"
            most = (self.n_positions - 1) // 2
            raise self.refusal(found, f"Choose up to {most} pairs in all, and at least one.")
        keys, values = sequences.tokens[:, 0::2], sequences.targets - (self.vocab_size - self.V)
        shown = [np.tile(x[:, :n_shown], n_copies) for x in (keys, values)]
        asked = [np.concatenate([s, x[:, [n_shown]]], axis=1) for s, x in zip(shown, (keys, values), strict=True)]
        n_observations = n_pairs + (self.layout == "sepvocab")
        return replace(self, L=n_observations).encode(*asked).last

    def encode(self, keys: Pairs, values: Pairs) -> Sequences:
        """The sequences that show these pairs, with the exact posterior; in `paired` the last is query and answer."""
        first_value = self.vocab_size - self.V
        posterior, is_repeat, n_distinct = exact_posterior(keys, values, self.V)
        n_before, symbols = np.arange(keys.shape[1]), np.arange(self.V)
        free = ~earlier(values[..., None] == symbols)
        return self._sequences(
            in_turn(keys, values + first_value)[:, :-1], 2 * n_before, values + first_value, posterior,
            first_value + symbols, n_before, {"n_distinct": n_distinct, "is_repeat": is_repeat},
            belief=free.astype(np.float64),
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        pool = random_orders(self.V, n, rng)[:, : self.key_pool]
        if self.replacement:
            keys = np.take_along_axis(pool, rng.integers(pool.shape[1], size=(n, self.L)), axis=1)
        else:
            keys = pool[:, : self.L]
        if self.layout == "paired":
            query = np.take_along_axis(keys, rng.integers(self.L, size=(n, 1)), axis=1)
            keys = np.concatenate([keys, query], axis=1)
        return keys, np.take_along_axis(random_orders(self.V, n, rng), keys, axis=1)


def exact_posterior(
    keys: Pairs, values: Pairs, n_symbols: int, cues: Pairs | None = None, shown: np.ndarray | None = None
) -> tuple[Float[np.ndarray, "sequence asked symbol"], Bool[np.ndarray, "sequence asked"], Pairs]:
    """The posterior of the value of each cue (default: the key itself), given the pairs before it.

    Also returns whether the cue came before as a key, and how many distinct keys did. The value of a new key is uniform
    over the values not taken. `shown` are values known from the start, by key; −1 for none.
    """
    symbols, cues, rows = np.arange(n_symbols), keys if cues is None else cues, np.arange(len(keys))
    known = np.full((len(keys), n_symbols), -1) if shown is None else shown.copy()
    taken = earlier(values[..., None] == symbols) | (known[..., None] == symbols).any(axis=1)[:, None]
    recalled = np.empty_like(values)
    for step in range(keys.shape[1]):
        recalled[:, step] = known[rows, cues[:, step]]
        known[rows, keys[:, step]] = values[:, step]
    n_distinct, is_repeat = taken.sum(axis=2), recalled >= 0
    free = ~taken / np.maximum(n_symbols - n_distinct, 1)[..., None]
    return np.where(is_repeat[..., None], recalled[..., None] == symbols, free), is_repeat, n_distinct
