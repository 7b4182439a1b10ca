"""Run a probe on simulations, one after another."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import TypeAdapter

from interp.findings import Findings
from interp.probe import Probe
from interp.records.unfinished import Arrays, Stage

from .simulations import Simulation, judged_name

SIZES = (0, 1, 2, 3)
"""Sizes of a planted effect, in steps of the simulation; 0 is the null."""


@dataclass(frozen=True)
class Seen:
    """Whether a number was significant in a simulation, and its interval contains the truth; None if not tested."""

    called: bool | None
    holds: bool | None

    @classmethod
    def of(cls, findings: Findings, number: str, truth: float | None) -> "Seen":
        name = judged_name(findings, number)
        if name not in findings.scalars:
            return cls(None, None)
        standing, bounds = findings.standing(name), findings[name].interval
        if standing == "unjudged":
            return cls(None, None)
        is_held_to = truth is not None and bounds is not None and all(map(math.isfinite, bounds))
        return cls(standing in ("above", "below"), bounds[0] <= truth <= bounds[1] if is_held_to else None)


Cells = dict[tuple[str, int], list[dict[str, Seen]]]
"""The result of every simulation by number, for each kind of simulation and size of the effect."""

_AS_KEPT = TypeAdapter(list[tuple[tuple[str, int], list[dict[str, Seen]]]])


def planned(kind: Simulation, null: int, planted: int) -> dict[int, int]:
    """The number of simulations of this kind by size: `null` without an effect, `planted` of each other size."""
    is_planted = not kind.null or bool(set(kind.null) - set(kind.unplanted))
    return {size: planted if size else null for size in (SIZES if is_planted else SIZES[:1])}


def run_simulations(
    probe: Probe,
    simulations: Sequence[tuple[Simulation, Mapping[int, int]]],
    first: int,
    stage: Stage,
    progress: Callable[[int], None],
) -> Cells:
    """Run these numbers of simulations of each kind and size, except those kept in `stage`.

    `progress` is called with the number done. Kinds never share a seed, so all can be counted together.
    """
    kept = stage.load()
    found: Cells = dict(_AS_KEPT.validate_json(kept.arrays["seen",].tobytes())) if kept else {}

    def saved() -> Arrays:
        yield ("seen",), np.frombuffer(_AS_KEPT.dump_json(list(found.items())), np.uint8)

    done, n_all = 0, sum(sum(counts.values()) for _, counts in simulations)
    with stage.keeping(n_all, "simulations", lambda: sum(map(len, found.values())), saved) as keep:
        for i, (kind, counts) in enumerate(simulations):
            for size, n in counts.items():
                seen = found.setdefault((kind.name, size), [])
                seeds = range(first + 1000 * i + len(seen), first + 1000 * i + n)
                for one in shown(kind, probe, seeds, size):
                    seen.append(one)
                    progress(done + len(seen))
                    keep()
                done += n
    return found


def shown(kind: Simulation, probe: Probe, seeds: range, size: int) -> Iterator[dict[str, Seen]]:
    """The results of the simulations with these seeds, for the numbers tested in them."""
    for seed in seeds:
        findings, truth = kind.findings(probe, seed, float(size)), kind.truth(seed, float(size))
        named = kind.null or tuple(name for name in findings.headline if findings[name].p is not None)
        judged = [name for name in named if size == 0 or name not in kind.unplanted]
        yield {name: Seen.of(findings, name, truth.get(name)) for name in judged}
