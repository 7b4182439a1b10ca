"""A reduction that keeps the rows of a few prompts, chosen before anything is captured.

Controls are matched on prompts that the axis was not fitted on, at all edited positions. The choice depends on cluster
numbers and a seed alone, and not on the order or number of batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Int, UInt64

from interp.reductions import Reduction, RunningState


@dataclass(frozen=True)
class PromptSample(Reduction):
    """`rows` `[row, ...]` and `prompt` `[row]` of the prompts that `chosen_clusters` names, in the order of prompts."""

    n: int
    seed: int = 0

    def starter(self, clusters: Int[np.ndarray, " prompt"]) -> Callable[[], RunningState]:
        return partial(_Sample, np.flatnonzero(np.isin(clusters, chosen_clusters(clusters, self.n, self.seed))))


class _Sample(RunningState):
    def __init__(self, chosen: Int[np.ndarray, " chosen"]) -> None:
        self.chosen = chosen
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, rows: np.ndarray, prompts: np.ndarray) -> None:
        kept = np.isin(prompts, self.chosen)
        self.parts.append((rows[kept], prompts[kept]))

    def merge(self, other: "_Sample") -> None:
        self.parts.extend(other.parts)

    def result(self) -> dict[str, np.ndarray]:
        rows, prompts = (np.concatenate(of) for of in zip(*self.parts, strict=True))
        order = np.argsort(prompts, kind="stable")
        return {"rows": rows[order], "prompt": prompts[order]}

    def saved(self) -> dict[str, np.ndarray]:
        return self.result() if self.parts else {}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self.parts = [(saved["rows"], saved["prompt"])] if saved else []


def chosen_clusters(
    clusters: Int[np.ndarray, " prompt"], n: int, seed: int, most: int | None = None
) -> Int[np.ndarray, " chosen"]:
    """The first clusters by their keys that hold at most `n` prompts together, at most `most`; at least one."""
    names, n_of = np.unique(clusters, return_counts=True)
    order = np.argsort(keys(names, seed), kind="stable")[:most]
    return names[order[: max(1, int((np.cumsum(n_of[order]) <= n).sum()))]]


def keys(numbers: Int[np.ndarray, " name"], seed: int) -> UInt64[np.ndarray, " name"]:
    """A pseudo-random number for every one (splitmix64 of Steele, Lea and Flood 2014), the same wherever it is."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) + np.uint64(1 + seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return x ^ (x >> np.uint64(31))


def rows_of(reduced: Mapping[str, np.ndarray], layer: int, prompts: Int[np.ndarray, " chosen"]) -> np.ndarray:
    """The kept rows of some prompts at one layer, heads laid end to end, in float64."""
    rows = reduced["rows"][layer][np.isin(reduced["prompt"][layer], prompts)]
    return rows.reshape(len(rows), -1).astype(np.float64)
