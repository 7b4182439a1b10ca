"""How the cost of each observational probe grows with the size of its input: `python -m benchmarks.growth`.

The analysis is timed on captures of noise, doubling one size at a time; the reading on a small model with random
weights, for its length. Times are the least CPU seconds of the repeats on one thread. The exponent is the slope of log
seconds over log size: 1 is linear, 2 quadratic; a small one may mean that fixed costs prevail.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.methods import METHODS
from benchmarks.shapes import Shape as ModelShape
from benchmarks.shapes import write_model
from benchmarks.worker import load_plain, shared_copy
from interp.loading.load import load
from interp.options import RunOptions
from interp.probe import Probe
from interp.prompt import Prompt, PromptSet
from interp.prompting.pools import draw
from interp.reading.forward import capture
from interp.running.choose_probes import choose_probes
from interp.system.threads import one_thread
from interp.testing import Shape, synthetic_capture

REPEATS = 3
"""Repeats of work that takes less than a second; longer work is timed once."""

D_HEAD = 32
BASE = Shape(n_prompts=500, n_layers=6, n_heads=8, n_kv_heads=8, d_head=D_HEAD, d_model=256, vocab_size=1000)

SIZES: Mapping[str, Sequence[int]] = {
    "prompts": (250, 500, 1000, 2000),
    "layers": (3, 6, 12, 24),
    "width": (64, 128, 256, 512),
    "length": (64, 128, 256, 512, 1024),
}
"""The sizes that are timed. Heads are 32 wide, so a wider model has more of them."""

N_READ = 8
"""Prompts in a reading."""

MODEL = ModelShape(
    "gpt_neox",
    {
        "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 8, "rotary_pct": 0.25, "max_position_embeddings": 2048,
    },
)  # fmt: skip


@dataclass(frozen=True)
class Growth:
    """CPU seconds of some work at each size, and the fitted exponent."""

    work: str
    size: str
    seconds: Mapping[int, float]

    @property
    def exponent(self) -> float:
        """The slope of log seconds over log size by least squares."""
        return float(np.polyfit(np.log(list(self.seconds)), np.log(list(self.seconds.values())), 1)[0])


def shape_of(size: str, n: int) -> Shape:
    """The base shape with one of its sizes changed."""
    if size == "width":
        return replace(BASE, n_heads=n // D_HEAD, n_kv_heads=n // D_HEAD, d_model=n)
    return replace(BASE, **{f"n_{size}": n})


def analysing(probe: Probe, shape: Shape) -> Callable[[], object]:
    """A function that runs the probe's analysis on a capture of this shape, subsampled as in a run."""
    drawn, _ = draw(synthetic_capture(probe.needs, shape), RunOptions.per_quintile)
    return lambda: probe.analyse(drawn, {})


def analysis_growth(probe: Probe, size: str, sizes: Iterable[int]) -> Growth:
    seconds = {n: least_seconds(analysing(probe, shape_of(size, n))) for n in sizes}
    return Growth(probe.name, size, seconds)


def reading_growth(probes: Sequence[Probe], lengths: Sequence[int], folder: Path) -> list[Growth]:
    """Growth of the bare pass, and of reading what each probe requests, with the length."""
    module = load_plain(write_model(MODEL, folder), "cpu", "float32")
    model, bare = load(shared_copy(module), check=False), METHODS["floor"].prepare(module, folder)
    generator = torch.Generator().manual_seed(0)
    batches = {n: torch.randint(1, 1000, (N_READ, n), generator=generator) for n in lengths}
    prompts = PromptSet("growth", [Prompt(text=f"text {n}") for n in range(N_READ)])
    found = [
        Growth(
            "bare pass", "length", {n: least_seconds(partial(bare, [ids], lambda: None)) for n, ids in batches.items()}
        )
    ]
    for probe in probes:
        reads = {
            n: partial(capture, model, prompts, list(ids.numpy()), probe.needs, tokens_per_batch=ids.numel())
            for n, ids in batches.items()
        }
        found.append(Growth(probe.name, "length", {n: least_seconds(read) for n, read in reads.items()}))
    return found


def least_seconds(work: Callable[[], object]) -> float:
    """The least CPU time of the repeats."""
    found: list[float] = []
    while len(found) < REPEATS and max(found, default=0.0) < 1.0:
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def measure(sizes: Mapping[str, Sequence[int]] = SIZES) -> list[Growth]:
    """Every observational probe on every size."""
    probes = choose_probes(["all"]).probes
    with one_thread(), torch.inference_mode(), tempfile.TemporaryDirectory() as scratch:
        found = [
            analysis_growth(probe, size, each) for probe in probes for size, each in sizes.items() if size != "length"
        ]
        return found + reading_growth(probes, sizes["length"], Path(scratch))


def main() -> None:
    print(json.dumps([asdict(each) | {"exponent": each.exponent} for each in measure()]))


if __name__ == "__main__":
    main()
