"""Trying a probe on worlds, one after another, and keeping what was found of each while it goes on."""

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from interp.findings import Findings, Scalar
from interp.probe import Probe
from interp.system.signals import remember
from interp.system.whole_files import writing

from .worlds import N_MODELS, World, judged_name

SIZES = (0, 1, 2, 3)
"""Sizes of a planted effect, in steps of the world's own; 0 is the null."""

WORLDS = "worlds.json"
_SECONDS_KEPT = 10.0
_LEAST_OF_A_MODEL = 8
"""Null worlds of a kind that share a model, before there are several models."""


@dataclass(frozen=True)
class Seen:
    """What one world showed of one number."""

    called: bool
    value: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, findings: Findings, number: str) -> "Seen":
        name = judged_name(findings, number)
        if name not in findings.scalars:
            return cls(False, math.nan, None)
        s: Scalar = findings[name]
        bounds = s.interval if s.interval and all(map(math.isfinite, s.interval)) else None
        return cls(findings.standing(name) in ("above", "below"), s.value, bounds)


_KeptSeen = tuple[bool, float | None, tuple[float, float] | None]
"""Called, value and interval, as the file has them."""


@dataclass(frozen=True)
class _KeptCell:
    """A cell as the file has it."""

    world: str
    size: int
    seen: list[dict[str, _KeptSeen]]


Cell = tuple[str, int]
"""A kind of world, by name, and the size of the effect."""


@dataclass
class Tried:
    """Every number of every world so far: the file in `folder`, which the same certificate goes on from."""

    folder: Path
    seen: dict[Cell, list[dict[str, Seen]]] = field(default_factory=dict)
    _wrote: float = field(default_factory=time.monotonic)

    @classmethod
    def begun_in(cls, folder: Path) -> "Tried":
        """What lies in the folder, if it can be read: what a stopped program left is whole."""
        try:
            kept = TypeAdapter(list[_KeptCell]).validate_json((folder / WORLDS).read_bytes())
        except (OSError, ValueError):
            kept = []
        cells = {(c.world, c.size): [{n: _seen(s) for n, s in one.items()} for one in c.seen] for c in kept}
        return cls(folder, cells)

    def keep(self) -> None:
        """Write all down, and say where; a disk that takes no more ends the keeping, not the certificate."""
        content = [
            {"world": world, "size": size, "seen": [{n: _plain(s) for n, s in one.items()} for one in seen]}
            for (world, size), seen in self.seen.items()
        ]
        self._wrote = time.monotonic()
        try:
            with writing(self.folder / WORLDS) as draft:
                draft.write_text(json.dumps(content), encoding="utf-8")
        except OSError as error:
            why = f"worlds cannot be kept in {self.folder} ({error.strerror or error})"
            warnings.warn(f"{why}; the certificate continues without", RuntimeWarning, stacklevel=2)
            return
        remember(f"{sum(map(len, self.seen.values()))} worlds are kept in {self.folder}")

    def keep_if_it_is_time(self) -> None:
        if time.monotonic() - self._wrote > _SECONDS_KEPT:
            self.keep()


def planned(worlds: Sequence[World], null: int, planted: int) -> list[dict[int, int]]:
    """How many worlds of each size every kind has: `null` and `planted` of each size in all, spread evenly."""
    n_planted = sum(_is_planted(world) for world in worlds)
    each = -(-null // max(1, len(worlds))), -(-planted // max(1, n_planted))
    return [{size: each[size > 0] for size in (SIZES if _is_planted(world) else SIZES[:1])} for world in worlds]


def _is_planted(world: World) -> bool:
    return not world.null or bool(set(world.null) - set(world.unplanted))


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
                for k in range(len(seen), n):
                    seed = first + 1000 * i + place_of(k, n)
                    seen.append(numbers_of(world, world.findings(probe, seed, float(size)), size))
                    heard(done + k + 1)
                    tried.keep_if_it_is_time()
                done += n
    finally:
        tried.keep()


def numbers_of(world: World, findings: Findings, size: int) -> dict[str, Seen]:
    """What a world shows of the numbers that are judged in it."""
    named = world.null or tuple(name for name in findings.headline if findings[name].p is not None)
    return {name: Seen.of(findings, name) for name in named if size == 0 or name not in world.unplanted}


def place_of(k: int, n: int) -> int:
    """The seed of the k-th of n worlds: few worlds share one model, so that each has others to be compared with."""
    n_models = max(1, min(N_MODELS, n // _LEAST_OF_A_MODEL))
    return N_MODELS * (k // n_models) + k % n_models


def covered(seen: list[Seen], places: list[int]) -> list[bool]:
    """Whether each interval holds the mean over the worlds of its own model; a model of two worlds has none.

    A world is part of the mean that it is compared with, which would let m worlds cover too often: the distance is
    put right by √(m / (m − 1)).
    """
    found = []
    for model in sorted({place % N_MODELS for place in places}):
        mine = [s for s, place in zip(seen, places, strict=True) if place % N_MODELS == model]
        mine = [s for s in mine if math.isfinite(s.value)]
        if len(mine) < 3:
            continue
        mean = sum(s.value for s in mine) / len(mine)
        wider = math.sqrt(len(mine) / (len(mine) - 1))
        for s in mine:
            if s.interval is not None:
                found.append(s.interval[0] <= s.value + (mean - s.value) * wider <= s.interval[1])
    return found


def _plain(s: Seen) -> list[object]:
    return [s.called, s.value if math.isfinite(s.value) else None, s.interval]


def _seen(kept: _KeptSeen) -> Seen:
    called, value, interval = kept
    return Seen(called, math.nan if value is None else value, interval)
