"""One measurement, in a process of its own: `python -m benchmarks.worker JOB`, answered by one line of JSON.

The bare pass and what is measured take turns, a batch each, on the same weights: whatever slows the machine for a
while slows both.
"""

import copy
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gpu import least_seconds, limits
from benchmarks.meters import Meter, meter_for
from benchmarks.methods import METHODS, Run
from interp.loading.quiet import quiet_libraries


@dataclass(frozen=True)
class Job:
    """`n_batches` batches of `batch` prompts of `length` tokens, through the model in `folder`.

    `with_limits` also measures what the device could do at most.
    """

    folder: str
    method: str
    batch: int
    length: int
    n_batches: int
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    with_limits: bool = False


@dataclass(frozen=True)
class Measured:
    """Seconds of every batch beside those of the bare pass around it; bytes over the loaded model."""

    seconds: tuple[float, ...]
    floor_seconds: tuple[float, ...]
    bytes: int
    floor_bytes: int
    unit: str
    least_seconds: float | None = None
    """The least time of a batch that arithmetic and memory allow (`benchmarks.gpu`), where that was asked for."""

    @property
    def in_words(self) -> str:
        """For the log, so that what was measured survives a table that is never reached."""
        times = median(a / b for a, b in zip(self.seconds, self.floor_seconds, strict=True))
        return f"{times:.3f} times the floor, {(self.bytes - self.floor_bytes) / 2**20:.0f} MiB over it"


class Turns:
    """The bare pass before the first batch and after every one."""

    def __init__(self, meter: Meter, floor: Run, batches: Sequence[torch.Tensor]) -> None:
        self.meter, self.floor, self.batches = meter, floor, batches
        self.base = meter.settle()
        self.floors: list[tuple[float, int]] = []
        self.rows: list[tuple[float, int]] = []

    def measure(self, run: Run) -> Measured:
        self._floor(0)
        self.meter.settle()
        self.meter.start()
        run(self.batches, self._after)
        closing, peak = self.meter.stop()
        seconds = [row + closing / len(self.rows) for row, _ in self.rows]
        floors = [s for s, _ in self.floors]
        return Measured(
            seconds=tuple(seconds),
            floor_seconds=tuple((a + b) / 2 for a, b in itertools.pairwise(floors)),
            bytes=max(peak, *(p for _, p in self.rows)) - self.base,
            floor_bytes=self.floors[0][1] - self.base,
            unit=self.meter.unit,
        )

    def _after(self) -> None:
        self.rows.append(self.meter.stop())
        self._floor(len(self.rows) - 1)
        self.meter.start()

    def _floor(self, n: int) -> None:
        self.meter.start()
        self.floor([self.batches[n]], lambda: None)
        self.floors.append(self.meter.stop())


def measure(job: Job) -> Measured:
    """Raises where the method cannot read the model; a method that calls back too seldom is an error too."""
    torch.set_num_threads(job.threads)
    method, folder = METHODS[job.method], Path(job.folder)
    method.ready()
    with quiet_libraries(), torch.inference_mode():
        module = load_plain(folder, job.device, job.dtype)
        run = method.prepare(shared_copy(module), folder)
        floor = METHODS["floor"].prepare(module, folder)
        batches = draw_batches(job, module.config.vocab_size)
        short = [ids[:, :8] for ids in batches[:1]]
        for warming in (floor, run):
            warming(short, lambda: None)
        measured = Turns(meter_for(job.device), floor, batches).measure(run)
        least = None
        if job.with_limits:
            least = least_seconds(module, job.batch, job.length, limits(job.device, module.dtype))
    if len(measured.seconds) != len(batches):
        raise RuntimeError(f"{job.method} read {len(measured.seconds)} of {len(batches)} batches")
    return replace(measured, least_seconds=least)


def load_plain(folder: Path, device: str, dtype: str) -> Any:
    """The transformers model of the folder; with weights of its own where the folder has none."""
    kind = getattr(torch, dtype)
    if (folder / "model.safetensors").exists():
        module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation="sdpa")
        module = module.to(device)
        for weight in module.parameters():  # pages mapped from a file come and go, and would count as memory used
            weight.data = weight.data.clone()
    else:
        with torch.device(device):
            config = AutoConfig.from_pretrained(folder)
            module = AutoModelForCausalLM.from_config(config, dtype=kind, attn_implementation="sdpa")
    return module.eval().requires_grad_(False)


def shared_copy(module: Any) -> Any:
    """Another module with the same weights in memory: a library may wrap it and the bare pass stays bare."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def draw_batches(job: Job, vocab_size: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    shape = (job.batch, job.length)
    return [torch.randint(1, vocab_size, shape, generator=drawn).to(job.device) for _ in range(job.n_batches)]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Job(**json.loads(sys.argv[1]))))))
