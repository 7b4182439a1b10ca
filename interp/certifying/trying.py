"""Trying a probe on worlds, one after another, and keeping what was found of each while it goes on."""

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

from .worlds import World, judged_name

SIZES = (0, 1, 2, 3)
"""Sizes of a planted effect, in steps of the world's own; 0 is the null."""

WORLDS = "worlds.json"
_SECONDS_KEPT = 10.0


@dataclass(frozen=True)
class Seen:
    """Whether a number was called in a world, and whether its interval holds the truth; None where it is not judged."""

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
"""What every world showed, number by number, by kind of world and size of the effect."""

_AS_KEPT = TypeAdapter(list[tuple[tuple[str, int], list[dict[str, Seen]]]])


@dataclass
class Tried:
    """Every number of every world so far: the file in `folder`, which the same certificate goes on from."""

    folder: Path
    seen: Cells = field(default_factory=dict)
    _wrote: float = field(default_factory=time.monotonic)

    @classmethod
    def begun_in(cls, folder: Path) -> "Tried":
        """What lies in the folder, if it can be read: what a stopped program left is whole."""
        try:
            kept = _AS_KEPT.validate_json((folder / WORLDS).read_bytes())
        except (OSError, ValueError):
            kept = []
        return cls(folder, dict(kept))

    def keep(self) -> None:
        """Write all down, and say where; a disk that takes no more ends the keeping, not the certificate."""
        self._wrote = time.monotonic()
        try:
            with writing(self.folder / WORLDS) as draft:
                draft.write_bytes(_AS_KEPT.dump_json(list(self.seen.items())))
        except OSError as error:
            why = f"worlds cannot be kept in {self.folder} ({error.strerror or error})"
            warnings.warn(f"{why}; the certificate continues without", RuntimeWarning, stacklevel=2)
            return
        remember(f"{sum(map(len, self.seen.values()))} worlds are kept in {self.folder}")

    def keep_if_it_is_time(self) -> None:
        if time.monotonic() - self._wrote > _SECONDS_KEPT:
            self.keep()


def planned(world: World, null: int, planted: int) -> dict[int, int]:
    """How many worlds of each size are made of this kind: `null` without an effect, `planted` of each planted size."""
    is_planted = not world.null or bool(set(world.null) - set(world.unplanted))
    return {size: planted if size else null for size in (SIZES if is_planted else SIZES[:1])}


def try_worlds(
    probe: Probe,
    worlds: Sequence[tuple[World, Mapping[int, int]]],
    first: int,
    tried: Tried,
    heard: Callable[[int], None],
) -> None:
    """Fill `tried` with so many worlds of each kind and size; `heard` is told how many are done in all.

    Worlds of two kinds never share a seed, so that all may be counted together.
    """
    done = 0
    try:
        for i, (world, counts) in enumerate(worlds):
            for size, n in counts.items():
                seen = tried.seen.setdefault((world.name, size), [])
                seeds = range(first + 1000 * i + len(seen), first + 1000 * i + n)
                for one in shown(world, probe, seeds, size):
                    seen.append(one)
                    heard(done + len(seen))
                    tried.keep_if_it_is_time()
                done += n
    finally:
        tried.keep()


def shown(world: World, probe: Probe, seeds: range, size: int) -> Iterator[dict[str, Seen]]:
    """What the worlds of these seeds show of the numbers that are judged in them."""
    for seed in seeds:
        findings, truth = world.findings(probe, seed, float(size)), world.truth(seed, float(size))
        named = world.null or tuple(name for name in findings.headline if findings[name].p is not None)
        judged = [name for name in named if size == 0 or name not in world.unplanted]
        yield {name: Seen.of(findings, name, truth.get(name)) for name in judged}
