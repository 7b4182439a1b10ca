"""Associative recall: pairs of distinct keys and values are shown, then cues query the stored values.

A noisy cue is another one of the K keys with probability ε (a symmetric channel):

    p(item i | cue c) ∝ p(c | key i) = 1 − ε where c is key i, and ε / (K − 1) elsewhere.

Source: Paper I v3 (arXiv 2512.22471), associative recall, in the layout of its reference code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.resampling import random_orders
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import FRACTION, Conflict
from .shipped_task import ShippedTask, earlier

PAD, STORE, FILLER, QUERY, SEP = range(5)
FIRST_KEY = 10
_KEY, _VALUE, _CUE = -1, -2, -3
_PAIR = {"plain": [_KEY, _VALUE], "marked": [STORE, _KEY, SEP, _VALUE]}
_QUERY = {"plain": [_CUE], "marked": [QUERY, _CUE, PAD]}


Pairs = Int[np.ndarray, "sequence pair"]
Queries = Int[np.ndarray, "sequence query"]


@dataclass(frozen=True)
class Recall(ShippedTask):
    """Recall of `n_pairs` pairs at `n_queries` cues, out of `n_keys` keys and `n_values` values.

    `layout` is `plain` (key value … key value, fillers, cue … cue) or `marked` (the papers': STORE key SEP value, and
    QUERY cue PAD). `n_fillers` tokens lie between pairs and queries, half as many between queries. `score` is `queries`
    or `all`. `noise` is ε, the probability that a cue is not the key of its item. The papers' sizes: n_pairs=64
    n_keys=256 n_values=256 n_queries=3 n_fillers=32 layout=marked, 329 tokens.
    """

    n_pairs: int = 8
    n_keys: int = 16
    n_values: int = 16
    n_queries: int = 8
    n_fillers: int = 0
    noise: float = 0.0
    layout: Literal["plain", "marked"] = "plain"
    score: Literal["queries", "all"] = "queries"

    name: ClassVar[str] = "recall"
    question: ClassVar[str] = "Does the network find the value that was stored with a key, and doubt a corrupted cue?"
    symbols_field: ClassVar[str] = "n_values"
    shifted: ClassVar = (False, True, False, False)
    rules: ClassVar = {
        "n_pairs": 1, "n_keys": 1, "n_values": 2, "n_queries": 1, "n_fillers": 0, "noise": FRACTION
    }  # fmt: skip
    units: ClassVar[Mapping[str, str]] = {
        **REQUIRED_UNITS,
        "evidence": "pairs",
        "is_query": "boolean",
        "is_stored": "boolean",
    }

    def conflicts(self) -> Iterator[Conflict]:
        for name, n in (("keys", self.n_keys), ("values", self.n_values)):
            found = f"{self.n_pairs} pairs with distinct {name} out of {n}"
            yield n < self.n_pairs, found, f"Choose n_{name} of {self.n_pairs} or more, or fewer pairs."
        is_alone = bool(self.noise) and self.n_keys < 2
        yield is_alone, "a noisy cue with one key: there is no other", "Choose n_keys of 2 or more."

    @property
    def vocab_size(self) -> int:
        return self._first_value + self.n_values

    @property
    def n_positions(self) -> int:
        return len(self._template())

    def encode(self, keys: Pairs, values: Pairs, items: Queries, cues: Queries) -> Sequences:
        """The sequences with these pairs, queried items and cues, and the exact posterior."""
        template = self._template()
        tokens = np.tile(np.where(template < 0, PAD, template), (len(keys), 1))
        tokens[:, template == _KEY] = keys + FIRST_KEY
        tokens[:, template == _VALUE] = values + self._first_value
        tokens[:, template == _CUE] = cues + FIRST_KEY
        scored = np.flatnonzero(template == _CUE)
        targets = np.take_along_axis(values, items, axis=1)
        posterior = answer_posterior(keys, values, cues, self.noise, self.n_keys, self.n_values)
        is_stored = (cues[:, :, None] == keys[:, None, :]).any(axis=2)
        evidence = np.full(self.n_queries, self.n_pairs)
        if self.score == "all":
            scored = np.concatenate([np.flatnonzero(template == _VALUE) - 1, scored])
            targets = np.concatenate([values, targets], axis=1)
            unused = ~earlier(values[:, :, None] == np.arange(self.n_values))  # each of them as likely as another
            first = unused / (self.n_values - np.arange(self.n_pairs))[:, None]
            posterior = np.concatenate([first, posterior], axis=1)
            is_stored = np.concatenate([np.zeros(keys.shape, dtype=bool), is_stored], axis=1)
            evidence = np.concatenate([np.arange(self.n_pairs), evidence])
        return self._sequences(
            tokens, scored, targets + self._first_value, posterior, self._first_value + np.arange(self.n_values),
            evidence, {"is_query": template[scored] == _CUE, "is_stored": is_stored},
        )  # fmt: skip

    @property
    def _first_value(self) -> int:
        return FIRST_KEY + self.n_keys

    def _template(self) -> Int[np.ndarray, " pos"]:
        """The constant tokens, with placeholders for keys, values and cues."""
        query, gap = _QUERY[self.layout], [FILLER] * (self.n_fillers // 2)
        queries = query + (gap + query) * (self.n_queries - 1)
        return np.array(_PAIR[self.layout] * self.n_pairs + [FILLER] * self.n_fillers + queries)

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        keys, values = (random_orders(size, n, rng)[:, : self.n_pairs] for size in (self.n_keys, self.n_values))
        items = rng.integers(self.n_pairs, size=(n, self.n_queries))
        cues = np.take_along_axis(keys, items, axis=1)
        if self.noise:
            other = (cues + rng.integers(1, self.n_keys, size=cues.shape)) % self.n_keys
            cues = np.where(rng.random(cues.shape) < self.noise, other, cues)
        return keys, values, items, cues


def answer_posterior(
    keys: Pairs, values: Pairs, cues: Queries, noise: float, n_keys: int, n_values: int
) -> Float[np.ndarray, "sequence query value"]:
    """The posterior of the value behind each cue under the symmetric channel."""
    hit: Bool[np.ndarray, "sequence query pair"] = cues[:, :, None] == keys[:, None, :]
    likelihood = np.where(hit, 1.0 - noise, noise / max(n_keys - 1, 1))
    posterior = np.zeros((*cues.shape, n_values))  # [sequence, query, value]
    by_item = likelihood / likelihood.sum(axis=2, keepdims=True)
    np.put_along_axis(posterior, np.broadcast_to(values[:, None, :], by_item.shape), by_item, axis=2)
    return posterior
