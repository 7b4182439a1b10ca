"""One measurement, in a process of its own: `python -m benchmarks.worker JOB` prints one line of JSON.

The bare pass and the measured method alternate batch by batch on the same weights, so that load on the machine affects
both. On a processor the bare pass runs in a forked process, whose memory no library has set up.
"""

import copy
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gpu import least_seconds, limits
from benchmarks.meters import Meter, meter_for
from benchmarks.methods import METHODS, Run
from interp.loading.quiet_libraries import quiet_libraries


@dataclass(frozen=True)
class Job:
    """`n_batches` batches of `batch` prompts of `length` tokens, through the model in `folder`.

    `with_limits` also measures the limits of the device.
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
    """Seconds of every batch and of the bare pass around it; bytes over the loaded model."""

    seconds: tuple[float, ...]
    floor_seconds: tuple[float, ...]
    bytes: int
    floor_bytes: int
    unit: str
    least_seconds: float | None = None
    """The least time of a batch (`benchmarks.gpu`), if measured."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Measured":
        """From JSON, which knows no tuples."""
        return cls(**{name: tuple(each) if isinstance(each, list) else each for name, each in fields.items()})

    @property
    def in_words(self) -> str:
        """For the log."""
        times = median(a / b for a, b in zip(self.seconds, self.floor_seconds, strict=True))
        return f"{times:.3f} times the floor, {(self.bytes - self.floor_bytes) / 2**20:.0f} MiB over it"


Stretch = tuple[float, int]
"""Seconds and peak bytes."""


class Turns:
    """The bare pass, `floor` of a batch, before the first batch and after every one."""

    def __init__(self, meter: Meter, floor: Callable[[torch.Tensor], Stretch], batches: Sequence[torch.Tensor]) -> None:
        self.meter, self.floor, self.batches = meter, floor, batches
        self.floors: list[Stretch] = []
        self.rows: list[Stretch] = []

    def measure(self, run: Run) -> Measured:
        self.floors.append(self.floor(self.batches[0]))
        base = self.meter.settle()
        self.meter.start()
        run(self.batches, self._after)
        closing, peak = self.meter.stop()
        seconds = [row + closing / len(self.rows) for row, _ in self.rows]
        return Measured(
            seconds=tuple(seconds),
            floor_seconds=tuple((a + b) / 2 for (a, _), (b, _) in itertools.pairwise(self.floors)),
            bytes=max(peak, *(p for _, p in self.rows)) - base,
            floor_bytes=max(peak for _, peak in self.floors),
            unit=self.meter.unit,
        )

    def _after(self) -> None:
        self.rows.append(self.meter.stop())
        self.floors.append(self.floor(self.batches[len(self.rows) - 1]))
        self.meter.start()


def bare_pass(
    module: Any, folder: Path, job: Job, warming: Sequence[torch.Tensor]
) -> Callable[[torch.Tensor], Stretch]:
    """A function that returns seconds and peak memory, over the loaded model, of the plain pass of a batch."""
    torch.set_num_threads(job.threads)
    run, meter = METHODS["floor"].prepare(module, folder), meter_for(job.device)
    run(warming, lambda: None)
    base = meter.settle()

    def measured(ids: torch.Tensor) -> Stretch:
        meter.start()
        run([ids], lambda: None)
        seconds, peak = meter.stop()
        return seconds, peak - base

    return measured


@contextmanager
def forked(make: Callable[[], Callable[[Any], Any]]) -> Iterator[Callable[[Any], Any]]:
    """The function that `make` returns, run in a forked process that ends with the block."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()

    def serve() -> None:
        ours.close()
        function = make()
        with suppress(EOFError):
            while True:
                theirs.send(function(theirs.recv()))

    def ask(given: Any) -> Any:
        ours.send(given)
        return ours.recv()

    process = fork.Process(target=serve, daemon=True)
    process.start()
    theirs.close()
    try:
        yield ask
    finally:
        ours.close()
        process.join()


def measure(job: Job) -> Measured:
    """Measure a job; raises if the method cannot read the model or calls back too seldom."""
    torch.set_num_threads(1)  # a process with several threads cannot be forked
    method, folder = METHODS[job.method], Path(job.folder)
    method.ready()
    with quiet_libraries(), torch.inference_mode():
        module = load_plain(folder, job.device, job.dtype)
        batches = draw_batches(job, module.config.vocab_size)
        short = [ids[:, :8] for ids in batches[:1]]
        bare = partial(bare_pass, module, folder, job, short)
        with forked(bare) if job.device == "cpu" else nullcontext() as apart:
            torch.set_num_threads(job.threads)
            run = method.prepare(shared_copy(module), folder)
            run(short, lambda: None)
            measured = Turns(meter_for(job.device), apart or bare(), batches).measure(run)
        least = None
        if job.with_limits:
            least = least_seconds(module, job.batch, job.length, limits(job.device, module.dtype))
    if len(measured.seconds) != len(batches):
        raise RuntimeError(f"{job.method} read {len(measured.seconds)} of {len(batches)} batches")
    return replace(measured, least_seconds=least)


def load_plain(folder: Path, device: str, dtype: str) -> Any:
    """The transformers model of the folder, with random weights if it has none."""
    kind = getattr(torch, dtype)
    if (folder / "model.safetensors").exists():
        module: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, attn_implementation="sdpa")
        module = module.to(device)
        for weight in module.parameters():  # pages mapped from a file would count as memory used
            weight.data = weight.data.clone()
    else:
        with torch.device(device):
            config = AutoConfig.from_pretrained(folder)
            module = AutoModelForCausalLM.from_config(config, dtype=kind, attn_implementation="sdpa")
    return module.eval().requires_grad_(False)


def shared_copy(module: Any) -> Any:
    """Another module with the same weights in memory, which a library may wrap."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def draw_batches(job: Job, vocab_size: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    shape = (job.batch, job.length)
    return [torch.randint(1, vocab_size, shape, generator=drawn).to(job.device) for _ in range(job.n_batches)]


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Job(**json.loads(sys.argv[1]))))))
