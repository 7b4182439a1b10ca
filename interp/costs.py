"""What a run will cost, told before it starts from the configuration of the model alone: `interp plan`.

Counted: passes, tokens, memory and disk. Measured: the speed of this machine on one or two blocks of the model's own
shapes, for about a second. The weights are neither read nor fetched.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from interp.capture import ModelInfo
from interp.loading.placement import free_bytes
from interp.observe import Prompts
from interp.planning.calibration import Clock, speeds
from interp.planning.memory import Memory, memory_of
from interp.planning.sketch import sketch
from interp.planning.work import Passes, passes_of
from interp.pools import Reading
from interp.probe import Probe
from interp.readable import choose_probes, readable_probes

SPREAD = 2**0.5
"""The range of a time: so many times shorter and longer than what was calculated, a factor of two in all."""

LOADED_PER_SECOND = 200e6
"""Bytes of weights that are read, converted, named and checked in a second of one core."""

PAGE_BYTES, PROBE_BYTES = 2_100_000, 240_000
"""A page without probes, which is the drawing library, and what each probe adds to it and to the tables."""


@dataclass(frozen=True)
class Step:
    """Passes of one kind: how many, over how many prompts and tokens each, through how many blocks, and how long."""

    what: str
    n: int
    n_prompts: int
    n_tokens: int
    n_blocks: int
    seconds: float | None


@dataclass(frozen=True)
class Plan:
    """The cost of a run. `disk` is what it writes, `download` what is fetched first; all sizes in bytes."""

    model: ModelInfo
    probes: tuple[str, ...]
    steps: tuple[Step, ...]
    memory: Memory
    free: int
    disk: int
    download: int
    loading_seconds: float | None
    notes: tuple[str, ...] = ()

    @property
    def n_passes(self) -> int:
        return sum(step.n for step in self.steps)

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model, padding and every condition counted."""
        return sum(step.n * step.n_tokens for step in self.steps)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """From when to when loading and reading will be done; None where nothing was measured."""
        parts = [self.loading_seconds, *(step.seconds for step in self.steps)]
        if any(part is None for part in parts):
            return None
        total = sum(part for part in parts if part is not None)
        return total / SPREAD, total * SPREAD

    @property
    def fits(self) -> bool:
        """Whether the peak is within the memory that is free where the model would be put."""
        return (self.memory.peak if self.memory.is_on_cpu else self.memory.on_device) <= self.free


def plan(
    model: str | Path = "tunnel:bijection-gpt-neox",
    *,
    probes: Sequence[str | Probe] = ("manifold",),
    prompts: Prompts | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    device_map: str | None = None,
    n_pool: int | None = None,
    window: int | None = None,
    seed: int = 0,
    text_column: str = "text",
    bos: bool = True,
    null: Literal["untrained"] | None = None,
    is_timed: bool = True,
    clock: Clock = time.perf_counter,
) -> Plan:
    """What `interp.run` with these arguments will cost; none of the weights is read.

    Without `is_timed` nothing is measured and no time is given; `clock` measures it otherwise. Raises what the run
    would raise for the names and settings, but not where memory is short: `Plan.fits` says so.
    """
    asked = choose_probes(probes, settings or {})
    drawn = sketch(model, revision=revision, dtype=dtype, device=device, device_map=device_map)
    chosen = readable_probes(drawn.model, asked)
    passes = passes_of(drawn.model, prompts, chosen, Reading(n_pool, seed, text_column, window, bos))
    n_times = 2 if null == "untrained" else 1
    steps, loading = _timed(drawn, passes, n_times, clock) if is_timed else (_untimed(drawn, passes, n_times), None)
    return Plan(
        model=drawn.model.info,
        probes=tuple(probe.name for probe in chosen),
        steps=steps,
        memory=memory_of(drawn, passes),
        free=free_bytes(drawn.placement),
        disk=PAGE_BYTES + PROBE_BYTES * len(chosen),
        download=0 if drawn.is_here else drawn.file_bytes,
        loading_seconds=loading,
        notes=tuple(dict.fromkeys(p.text.note for p in passes if p.text.note)),
    )
