"""Trying a probe on simulations, one after another, and keeping what was found of each while it goes on."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from interp.findings import Findings
from interp.probe import Probe
from interp.system.signals import remember
from interp.system.whole_files import writing

from .simulations import Simulation, judged_name

SIZES = (0, 1, 2, 3)
"""Sizes of a planted effect, in steps of the simulation's own; 0 is the null."""

SIMULATIONS = "worlds.json"
_SECONDS_KEPT = 10.0


@dataclass(frozen=True)
class Seen:
    """Whether a number was called in a simulation, and whether its interval holds the truth; None where not judged."""

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
"""What every simulation showed, number by number, by kind of simulation and size of the effect."""

_AS_KEPT = TypeAdapter(list[tuple[tuple[str, int], list[dict[str, Seen]]]])


@dataclass
class Tried:
    """Every number of every simulation so far: the file in `folder`, which the same certificate goes on from."""

    folder: Path
    seen: Cells = field(default_factory=dict)
    _wrote: float = field(default_factory=time.monotonic)

    @classmethod
    def begun_in(cls, folder: Path) -> "Tried":
        """What lies in the folder, if it can be read: what a stopped program left is whole."""
        try:
            kept = _AS_KEPT.validate_json((folder / SIMULATIONS).read_bytes())
        except (OSError, ValueError):
            kept = []
        return cls(folder, dict(kept))

    def keep(self) -> None:
        """Write all down, and say where; a disk that takes no more ends the keeping, not the certificate."""
        self._wrote = time.monotonic()
        try:
            with writing(self.folder / SIMULATIONS) as draft:
                draft.write_bytes(_AS_KEPT.dump_json(list(self.seen.items())))
        except OSError as error:
            why = f"simulations cannot be kept in {self.folder} ({error.strerror or error})"
            warnings.warn(f"{why}; the certificate continues without", RuntimeWarning, stacklevel=2)
            return
        remember(f"{sum(map(len, self.seen.values()))} simulations are kept in {self.folder}")

    def keep_if_it_is_time(self) -> None:
        if time.monotonic() - self._wrote > _SECONDS_KEPT:
            self.keep()


def planned(kind: Simulation, null: int, planted: int) -> dict[int, int]:
    """How many simulations of this kind: `null` without an effect, `planted` of each planted size."""
    is_planted = not kind.null or bool(set(kind.null) - set(kind.unplanted))
    return {size: planted if size else null for size in (SIZES if is_planted else SIZES[:1])}


def run_simulations(
    probe: Probe,
    simulations: Sequence[tuple[Simulation, Mapping[int, int]]],
    first: int,
    tried: Tried,
    heard: Callable[[int], None],
) -> None:
    """Fill `tried` with so many simulations of each kind and size; `heard` is told how many are done in all.

    Simulations of two kinds never share a seed, so that all may be counted together.
    """
    done = 0
    try:
        for i, (kind, counts) in enumerate(simulations):
            for size, n in counts.items():
                seen = tried.seen.setdefault((kind.name, size), [])
                seeds = range(first + 1000 * i + len(seen), first + 1000 * i + n)
                for one in shown(kind, probe, seeds, size):
                    seen.append(one)
                    heard(done + len(seen))
                    tried.keep_if_it_is_time()
                done += n
    finally:
        tried.keep()


def shown(kind: Simulation, probe: Probe, seeds: range, size: int) -> Iterator[dict[str, Seen]]:
    """What the simulations of these seeds show of the numbers that are judged in them."""
    for seed in seeds:
        findings, truth = kind.findings(probe, seed, float(size)), kind.truth(seed, float(size))
        named = kind.null or tuple(name for name in findings.headline if findings[name].p is not None)
        judged = [name for name in named if size == 0 or name not in kind.unplanted]
        yield {name: Seen.of(findings, name, truth.get(name)) for name in judged}
