"""Prompts that begin alike share the pass over what they share: their tokens as a tree, laid out in one sequence.

Every token stands once, behind those that it follows in its prompts. It sees these alone and has the position that it
has in a prompt, so that what is read of it is what would be read of each prompt by itself, but for rounding. Prompts of
the same tokens share all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from interp.statistics.resampling import n_before

Ids = Sequence[Int[np.ndarray, " _pos"]]

_IN_COMMON = 1 / 4
"""Share of a prompt's tokens that it has to have in common with the one before it to be laid beside it."""

_SMALL, _BESIDE = 128, 512
"""Tokens that a tree may have in any case, and those that it may have beside its longest prompt: as many as that has,
up to this number. Attention grows with the square of the sequence, and memory with its length."""


@dataclass(frozen=True)
class Pack:
    """Prompts laid out in one sequence.

    `ids` are its tokens, `position` their positions in the prompts and `parent` the places of the tokens before them
    (-1: none). `places` says of each of the `prompts` where in the sequence its tokens lie.
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
        """Whether every token follows the one before it, as in a prompt by itself."""
        return bool((self.parent == np.arange(-1, len(self) - 1)).all())

    @property
    def start(self) -> int:
        """The position of its first token: above 0 where the tokens before do not pass."""
        return int(self.position[0])

    @property
    def longest(self) -> int:
        """How many tokens its longest prompt has."""
        return int(self.position.max()) + 1

    @property
    def n_alone(self) -> int:
        """How many tokens its prompts have, those of the same tokens once."""
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
        if all(np.array_equal(ids[prompt], ids[prompts[0]]) for prompt in prompts[1:]):
            tokens = np.asarray(ids[prompts[0]], dtype=np.int64)
            along = np.arange(len(tokens))
            return cls(np.array(prompts), tokens, along, along - 1, (along,) * len(prompts))
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
    """No prompt shares anything; the first of every cluster come before the second, so that neighbours differ."""
    order = range(len(ids)) if clusters is None else np.argsort(n_before(clusters), kind="stable").tolist()
    return [Pack.of([prompt], ids) for prompt in order]


def packed(ids: Ids, *, prefixes: bool, scales: Int[np.ndarray, " prompt"] | None = None) -> list[Pack]:
    """Prompts of the same tokens laid out once, and with `prefixes` those that begin alike as trees of tokens.

    Prompts of unlike `scales` (`interp.hooks.ropes`) share no tree; None says that all are alike.
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
    """How many tokens two prompts have in common from their beginning on."""
    n = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one)[:n] != np.asarray(other)[:n])
    return int(differ[0]) if len(differ) else n
