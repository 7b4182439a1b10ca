"""Prompts with a common beginning, laid out as a tree of tokens in one sequence that the model reads once.

Every token occurs once, after those that it follows in its prompts. It attends to these only and has the position that
it has in a prompt, so its activations are those of each prompt alone, up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from interp.statistics.resampling import n_before

Ids = Sequence[Int[np.ndarray, " _pos"]]

_IN_COMMON = 1 / 4
"""Share of a prompt's tokens that it must have in common with the one before it to join its tree."""

_SMALL, _BESIDE = 128, 512
"""Tokens that a tree may always have, and the most that it may have beside its longest prompt (not more than that has).
Attention grows with the square of the sequence."""


@dataclass(frozen=True)
class Pack:
    """Prompts laid out in one sequence.

    `ids` are its tokens, `position` their positions in the prompts and `parent` the indices of the tokens before them
    (-1: none). `places` holds for each of the `prompts` the indices of its tokens in the sequence.
    """

    prompts: Int[np.ndarray, " prompt"]
    ids: Int[np.ndarray, " token"]
    position: Int[np.ndarray, " token"]
    parent: Int[np.ndarray, " token"]
    places: tuple[Int[np.ndarray, " _pos"], ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def is_plain(self) -> bool:
        """Whether every token follows the one before it, as in a single prompt."""
        return bool((self.parent == np.arange(-1, len(self) - 1)).all())

    @property
    def start(self) -> int:
        """The position of its first token: above 0 if the tokens before are not read."""
        return int(self.position[0])

    @property
    def longest(self) -> int:
        """The number of tokens of its longest prompt."""
        return int(self.position.max()) + 1

    @property
    def n_alone(self) -> int:
        """The number of tokens of its prompts, each prompt counted once."""
        ends = np.unique([along[-1] for along in self.places])
        return int((self.position[ends] + 1).sum())

    @cached_property
    def visible(self) -> Bool[np.ndarray, "token token"]:
        """Which tokens each token sees: itself and those that it follows."""
        seen = np.eye(len(self), dtype=bool)
        for token, parent in enumerate(self.parent):
            if parent >= 0:
                seen[token] |= seen[parent]
        return seen

    @classmethod
    def tail(cls, prompt: int, ids: Ids, start: int) -> "Pack":
        """A prompt from a position on."""
        tokens = np.asarray(ids[prompt][start:], dtype=np.int64)
        along = np.arange(len(tokens))
        return cls(np.array([prompt]), tokens, along + start, along - 1, (np.arange(-start, len(tokens)),))

    @classmethod
    def of(cls, prompts: Sequence[int], ids: Ids) -> "Pack":
        """The tree of these prompts."""
        if len(prompts) == 1:
            return cls.tail(prompts[0], ids, 0)
        place_of: dict[tuple[int, int], int] = {}
        laid: list[tuple[int, int, int]] = []
        places = []
        for prompt in prompts:
            along, parent = [], -1
            for position, token in enumerate(np.asarray(ids[prompt]).tolist()):
                place = place_of.setdefault((parent, token), len(laid))
                if place == len(laid):
                    laid.append((token, position, parent))
                along.append(place)
                parent = place
            places.append(np.array(along))
        tokens, position, parents = np.array(laid, dtype=np.int64).T
        return cls(np.array(prompts), tokens, position, parents, tuple(places))


def each_alone(ids: Ids, clusters: Int[np.ndarray, " prompt"] | None = None) -> list[Pack]:
    """One pack per prompt; the first of every cluster come before the second, so that neighbours differ."""
    order = range(len(ids)) if clusters is None else np.argsort(n_before(clusters), kind="stable").tolist()
    return [Pack.of([prompt], ids) for prompt in order]


def packed(ids: Ids, *, prefixes: bool, scales: Int[np.ndarray, " prompt"] | None = None) -> list[Pack]:
    """Packs of equal prompts, and with `prefixes` of prompts with a common beginning, as trees of tokens.

    Prompts of different `scales` (`interp.hooks.ropes`) share no tree; with None all are equal.
    """
    scales = np.zeros(len(ids)) if scales is None else scales
    order = sorted(
        range(len(ids)), key=lambda prompt: (scales[prompt], np.asarray(ids[prompt]).astype(">i8").tobytes())
    )
    groups: list[list[int]] = []
    n_tokens = longest = 0
    for prompt in order:
        n = len(ids[prompt])
        may_share = groups and scales[groups[-1][-1]] == scales[prompt]
        shared = _in_common(ids[groups[-1][-1]], ids[prompt]) if may_share else 0
        longest = max(longest, n)
        is_same = groups and shared == n == len(ids[groups[-1][-1]])
        fits = n_tokens + n - shared <= max(_SMALL, longest + min(longest, _BESIDE))
        if is_same or (prefixes and fits and shared > _IN_COMMON * n):
            groups[-1].append(prompt)
            n_tokens += n - shared
        else:
            groups.append([prompt])
            n_tokens = longest = n
    return [Pack.of(group, ids) for group in sorted(groups, key=min)]


def _in_common(one: Int[np.ndarray, " _pos"], other: Int[np.ndarray, " _pos"]) -> int:
    """The length of the common beginning of two prompts."""
    n = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one)[:n] != np.asarray(other)[:n])
    return int(differ[0]) if len(differ) else n
