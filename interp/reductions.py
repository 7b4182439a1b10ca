"""Reductions: what is kept of captured rows, which come batch by batch.

A reduction is a frozen description; its `starter` makes states that rows are added to and that can be merged with other
states of the same reduction. Sums run in float64, so the result does not depend on how the rows were cut into batches.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Int


class RunningState(ABC):
    """What has been seen so far of one site in one layer."""

    @abstractmethod
    def add(self, rows: np.ndarray, prompts: np.ndarray) -> None:
        """Take in rows `[row, ...]` and the index of the prompt each belongs to `[row]`."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Take in everything another state of the same reduction has seen; its rows come after ours."""

    @abstractmethod
    def result(self) -> dict[str, np.ndarray]:
        """The reduced arrays by name."""

    @abstractmethod
    def saved(self) -> dict[str, np.ndarray]:
        """All that has been seen, by name, for `restore`; nothing of a state that has seen nothing."""

    @abstractmethod
    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Make a fresh state the one whose `saved` this is: it goes on bit for bit as that one would have."""


class Reduction(ABC):
    """A way to reduce rows; compared and hashed by its parameters."""

    @abstractmethod
    def starter(self, clusters: Int[np.ndarray, " prompt"]) -> Callable[[], RunningState]:
        """What makes states that have seen nothing yet; `clusters` is the cluster of every prompt that is read."""

    def keeps(self, width: int) -> bool:
        """Whether anything is kept of rows of so many entries; where not, rows of none may be given instead."""
        return True


@dataclass(frozen=True)
class Rows(Reduction):
    """Keep every row as it is: `rows` `[row, ...]` in the order of the prompts. Memory grows with the rows.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> need = interp.Need("v", interp.Rows())  # what a Need keeps unless it is told otherwise
    >>> need == interp.Need("v")
    True
    """

    def starter(self, clusters: np.ndarray) -> Callable[[], RunningState]:
        return partial(_RowsState, self.keeps)


@dataclass(frozen=True)
class NarrowRows(Rows):
    """The rows where they have at most `max_width` entries each, and `[row, 0]` where they are wider.

    For what is wanted of the small vocabularies of wind tunnels and would be gigabytes of a language model's.
    """

    max_width: int = 512

    def keeps(self, width: int) -> bool:
        return width <= self.max_width


@dataclass(frozen=True)
class PromptMean(Reduction):
    """`rows` `[prompt, ...]`: the mean over the positions of each prompt, so that bands can be taken over prompts.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> need = interp.Need("pattern_entropy", interp.PromptMean(), "all")
    >>> interp.collect(model, prompts, [need])[need].shape  # [layer, prompt, head]
    (3, 8, 4)
    """

    def starter(self, clusters: np.ndarray) -> Callable[[], RunningState]:
        return _PromptMeanState


class _RowsState(RunningState):
    def __init__(self, keeps: Callable[[int], bool]) -> None:
        self.parts: list[np.ndarray] = []
        self.keeps = keeps

    def add(self, rows: np.ndarray, prompts: np.ndarray) -> None:
        # a new array: an empty view would keep the wide one in memory
        self.parts.append(rows if self.keeps(math.prod(rows.shape[1:])) else np.empty((len(rows), 0), rows.dtype))

    def merge(self, other: Any) -> None:
        self.parts.extend(other.parts)

    def result(self) -> dict[str, np.ndarray]:
        return {"rows": np.concatenate(self.parts)}

    def saved(self) -> dict[str, np.ndarray]:
        return self.result() if self.parts else {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.parts = list(saved.values())


class _PromptMeanState(RunningState):
    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, ...]] = []
        """Prompts, and the number and the sum of the rows of each."""

    def add(self, rows: np.ndarray, prompts: np.ndarray) -> None:
        starts = np.flatnonzero(np.diff(prompts, prepend=-1))  # rows of a prompt stand side by side
        if len(starts):
            sums = np.add.reduceat(rows.astype(np.float64), starts, axis=0)
            self.parts.append((prompts[starts], np.diff(starts, append=len(prompts)), sums))

    def merge(self, other: Any) -> None:
        self.parts.extend(other.parts)

    def result(self) -> dict[str, np.ndarray]:
        seen = self.saved()
        return {"rows": seen["sums"] / seen["counts"].reshape(-1, *(1,) * (seen["sums"].ndim - 1))}

    def saved(self) -> dict[str, np.ndarray]:
        if not self.parts:
            return {}
        of_part, *added = (np.concatenate(each) for each in zip(*self.parts, strict=True))
        prompts, place = np.unique(of_part, return_inverse=True)
        counts, sums = (np.zeros((len(prompts), *each.shape[1:]), each.dtype) for each in added)
        np.add.at(counts, place, added[0])
        np.add.at(sums, place, added[1])
        return {"prompts": prompts, "counts": counts, "sums": sums}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.parts = [(saved["prompts"], saved["counts"], saved["sums"])] if saved else []


REDUCTIONS: dict[str, type[Reduction]] = {each.__name__: each for each in (Rows, NarrowRows, PromptMean)}
"""The reductions by name, as files have them."""
