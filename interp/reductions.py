"""Reductions: what is kept of captured rows, which come batch by batch.

Sums run in float64, so results do not depend on the batches.
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
    """The rows seen so far of one site in one layer."""

    @abstractmethod
    def add(self, rows: np.ndarray, prompts: np.ndarray) -> None:
        """Add rows `[row, ...]` and the prompt of each `[row]`."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Add what another state of the same reduction has seen, after our rows."""

    @abstractmethod
    def result(self) -> dict[str, np.ndarray]:
        """The reduced arrays by name."""

    @abstractmethod
    def saved(self) -> dict[str, np.ndarray]:
        """The state as arrays for `restore`; empty if nothing was added."""

    @abstractmethod
    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Continue from `saved` arrays, bit for bit."""


class Reduction(ABC):
    """A way to reduce rows, compared and hashed by its parameters."""

    @abstractmethod
    def starter(self, clusters: Int[np.ndarray, " prompt"]) -> Callable[[], RunningState]:
        """A function that makes empty states; `clusters` has the cluster of every prompt."""

    def keeps(self, width: int) -> bool:
        """Whether rows of this many entries are kept; if not, empty rows may be added instead."""
        return True


@dataclass(frozen=True)
class Rows(Reduction):
    """Keep every row as it is: `rows` `[row, ...]` in the order of the prompts. Memory grows with the rows.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> need = interp.Need("v", interp.Rows())  # the default of a Need
    >>> need == interp.Need("v")
    True
    """

    def starter(self, clusters: np.ndarray) -> Callable[[], RunningState]:
        return partial(_RowsState, self.keeps)


@dataclass(frozen=True)
class NarrowRows(Rows):
    """Rows of at most `max_width` entries, else `[row, 0]`: for the small vocabularies of wind tunnels."""

    max_width: int = 512

    def keeps(self, width: int) -> bool:
        return width <= self.max_width


@dataclass(frozen=True)
class PromptMean(Reduction):
    """`rows` `[prompt, ...]`: the mean over the positions of each prompt.

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
