"""Costs that occur once per run: loading, starting, the shipped model's run, and the analysis with its growth."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.lines import Line, missing
from benchmarks.meters import own_cores, stay_on

REPEATS = 3

ONCE = ("loading", "start", "run", "analysis", "growth")
"""The first column of these lines."""

_IMPORT = """
import json, sys, time
began = time.process_time()
import interp
print(json.dumps([time.process_time() - began, sorted({"numpy", "torch"} & set(sys.modules))]))
"""

_FLOOR_OF_A_RUN = """
import torch
from transformers import AutoModelForCausalLM, GPTNeoXForCausalLM
print("imported")
"""

# weights may be mapped from the file, so a short pass makes both variants read all of them
_LOADING = """
import json, resource, sys, time, torch
from benchmarks.meters import ProcessorMeter
import interp.loading.load, transformers
folder, how = sys.argv[1:]
torch.set_num_threads(1)
meter = ProcessorMeter()
base = meter.settle()
meter.start()
if how == "plain":
    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
else:
    module = interp.loading.load.load(folder, dtype="float32", check=how == "checked").module
with torch.inference_mode():
    module(input_ids=torch.ones(1, 2, dtype=torch.long), logits_to_keep=1)
seconds, peak = meter.stop()
weights = sum(p.numel() * p.element_size() for p in module.parameters())
print(json.dumps([seconds, (peak - base) / weights]))
"""


def all_lines(folder: Path, figures: Mapping[str, float]) -> Iterator[Line]:
    """Every line of the table without a floor; `folder` holds a model with weights."""
    parts = {
        "loading": lambda: loading(folder),
        "start": starting,
        "run": shipped_run,
        "analysis": analysis,
        "growth": growing,
    }
    for name, part in parts.items():
        try:
            lines = part()
        except RuntimeError as error:  # a process that died
            lines = [replace(missing(name, "all lines", str(error).splitlines()[-1]), figure=0.0)]
        for line in lines:
            yield replace(line, figure=figures.get(line.what, line.figure))


def loading(folder: Path) -> list[Line]:
    """CPU time of `interp.load` and `from_pretrained`, alternating, each in a process of its own on one core."""
    repeats = {"plain": REPEATS, "unchecked": REPEATS, "checked": 1}
    found: dict[str, list[list[float]]] = {how: [] for how in repeats}
    cores = own_cores()
    stay_on(cores[:1])
    try:
        for turn in range(REPEATS):
            for how, n in repeats.items():
                if turn < n:
                    found[how].append(json.loads(_python(_LOADING, str(folder), how)))
    finally:
        stay_on(cores)
    floor = median(seconds for seconds, _ in found["plain"])
    names = {"unchecked": "interp.load over from_pretrained", "checked": "the same with the self-check"}
    lines = []
    for how, name in names.items():
        over = [seconds / floor for seconds, _ in found[how]]
        note = "" if how == "checked" else "without the self-check"
        lines.append(Line("loading", name, "time", median(over), "times", (min(over), max(over)), note=note))
    memory = {how: [share for _, share in found[how]] for how in found}
    for how, name in (("plain", "memory of from_pretrained"), ("checked", "memory of interp.load")):
        shares = memory[how]
        spread = (min(shares), max(shares))
        lines.append(Line("loading", f"{name} over the weights", "memory", median(shares), "times", spread))
    return lines


def starting() -> list[Line]:
    imports = [json.loads(_python(_IMPORT)) for _ in range(REPEATS)]
    heavy = imports[0][1]
    importing = _spread("start", "import interp", [seconds for seconds, _ in imports], "s CPU")
    return [
        replace(importing, note=f"imports {' and '.join(heavy)}" if heavy else "neither numpy nor torch"),
        _spread("start", "interp --help", [_timed(_interp("--help"))[0] for _ in range(REPEATS)], "s CPU"),
    ]


def shipped_run() -> list[Line]:
    """Wall time of `interp run` on the shipped model with its page, as in `make demo`.

    It alternates with importing torch and the model's class of transformers, which every run needs.
    """

    def once() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as out:
            return _timed(_interp("run", "--out", out))

    importing, found = [], []
    for _ in range(REPEATS):
        importing.append(_timed(lambda: _python(_FLOOR_OF_A_RUN))[1])
        found.append(once())
    line = _spread("start", "interp run", [wall for _, wall in found], "s")
    over = [wall / least for (_, wall), least in zip(found, importing, strict=True)]
    beside = _spread("start", "interp run over importing torch and transformers", over, "times")
    return [
        replace(line, note=f"{median(cpu for cpu, _ in found):.1f} s CPU"),
        replace(beside, note=f"importing them takes {median(importing):.1f} s"),
    ]


def analysis() -> list[Line]:
    """Wall time of all observational probes on a capture of Pythia-410M's shape."""
    command = [sys.executable, "-m", "benchmarks.analysis"]
    probes = json.loads(_checked(subprocess.run(command, capture_output=True, text=True)))["probes"]
    wall, cpu = (sum(each) for each in zip(*probes.values(), strict=True))
    slowest = sorted(probes.items(), key=lambda item: -item[1][0])[:3]
    note = f"{cpu:.1f} s CPU; slowest: " + ", ".join(f"{name} {seconds:.1f} s" for name, (seconds, _) in slowest)
    return [Line("analysis", "analysis of 1,000 prompts, 24 layers", "time", wall, "s", note=note)]


def growing() -> list[Line]:
    """The exponent of each probe's cost in each size, with the seconds at the largest."""
    command = [sys.executable, "-m", "benchmarks.growth"]
    lines = []
    for each in json.loads(_checked(subprocess.run(command, capture_output=True, text=True)).splitlines()[-1]):
        n, seconds = max((int(n), seconds) for n, seconds in each["seconds"].items())
        note = f"{seconds:.2f} s CPU at {n:,}"
        what = f"{each['work']}, growth with {each['size']}"
        lines.append(Line("growth", what, "time", each["exponent"], "exponent", note=note))
    return lines


def _interp(*arguments: str) -> Callable[[], object]:
    command = [sys.executable, "-m", "interp", *arguments]
    return lambda: _checked(subprocess.run(command, capture_output=True, text=True))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the child processes, and wall seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def _python(code: str, *arguments: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return _checked(subprocess.run(command, capture_output=True, text=True, env=environment)).splitlines()[-1]


def _checked(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode:
        raise RuntimeError(f"{' '.join(done.args[:3])} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _spread(work: str, what: str, seconds: list[float], unit: str) -> Line:
    return Line(work, what, "time", median(seconds), unit, (min(seconds), max(seconds)))
