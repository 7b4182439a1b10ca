"""`python -m benchmarks`: measure, print the table, write results.json, and fail if a figure is missed.

Results excluded by `--only`, `--cpu` or `--gpu` stay in results.json with their date.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from benchmarks.lines import (
    Line,
    comparison,
    failures,
    floor_line,
    growth,
    lines_of,
    missing,
    table,
    use_lines,
)
from benchmarks.meters import own_cores, stay_on
from benchmarks.methods import METHODS
from benchmarks.once import ONCE, all_lines
from benchmarks.shapes import SHAPES, write_model
from benchmarks.worker import Job, Measured

HERE = Path(__file__).parent
FIGURES, RESULTS = HERE / "figures.toml", HERE / "results.json"
FORMAT = 2
PACKAGES = ("torch", "transformers", "numpy", "transformer-lens", "nnsight", "nnterp")

Found = dict[tuple[str, str], Measured | str]
"""By work and method: the measurement, or why there is none."""


@dataclass(frozen=True)
class Place:
    """The device and precision of measurements, and how many run at once."""

    device: str = "cpu"
    dtype: str = "float32"
    at_once: int = 1
    with_limits: bool = False


def run_jobs(
    works: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Iterable[str]],
    folders: Mapping[str, Path],
    place: Place,
    say: Callable[[str], None],
) -> Found:
    """Measure every row of every work, each in a process of its own on one core."""
    asked = [(work, method) for work in works for method in rows[work]]

    def one(key: tuple[str, str]) -> Measured | str:
        work, method = key
        if not METHODS[method].is_installed:
            return f"{METHODS[method].package} is not installed"
        sizes = {k: v for k, v in works[work].items() if k != "model"}
        folder = str(folders[works[work]["model"]])
        found = run_job(
            Job(folder, method, device=place.device, dtype=place.dtype, with_limits=place.with_limits, **sizes)
        )
        say(f"{work}: {METHODS[method].label}: {found if isinstance(found, str) else found.in_words}")
        return found

    each = [[core] for core in own_cores()] if place.device == "cpu" else []
    cores = itertools.cycle(each or [[]])
    with ThreadPoolExecutor(place.at_once, initializer=lambda: stay_on(next(cores))) as pool:
        return dict(zip(asked, pool.map(one, asked), strict=True))


def run_job(job: Job) -> Measured | str:
    """The measurement of another process, or the last line of its error."""
    command = [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(job))]
    environment = os.environ | {"OMP_NUM_THREADS": str(job.threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        return f"failed ({said[-1][:200] if said else f'exit {done.returncode}'})"
    return Measured.of(json.loads(done.stdout.splitlines()[-1]))


def lines_from(
    found: Found, works: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Mapping[str, Mapping[str, float]]]
) -> list[Line]:
    """The table's lines of every work, the floor first."""
    lines = []
    for work, sizes in works.items():
        mine = {method: found[work, method] for method in rows[work] if (work, method) in found}
        done = [m for m in mine.values() if isinstance(m, Measured)]
        n_tokens = sizes["batch"] * sizes["length"]
        if done:
            lines.append(floor_line(f"{work}{_note(sizes)}", done, n_tokens))
        for method, measured in mine.items():
            label, limits = METHODS[method].label, rows[work][method]
            if isinstance(measured, Measured):
                lines += lines_of(work, label, measured, limits) + use_lines(work, label, measured, n_tokens)
            else:
                lines.append(missing(work, label, measured))
    return lines


def _note(sizes: Mapping[str, Any]) -> str:
    note = SHAPES[sizes["model"]].note if sizes["model"] in SHAPES else ""
    return f" ({note})" if note else ""


def relations(found: Found, figures: Mapping[str, Any]) -> list[Line]:
    """Comparisons with other libraries, and the growth with the length."""
    lines: list[Line] = []

    def get(work: str, method: str) -> Measured | None:
        measured = found.get((work, method))
        return measured if isinstance(measured, Measured) else None

    for each in figures["comparisons"]:
        work, ours, other = each["work"], each["ours"], each["other"]
        if (work, ours) in found and (work, other) in found:
            labels = (METHODS[ours].label, METHODS[other].label)
            lines += comparison(work, labels, get(work, ours), get(work, other), each)
    for each in figures["growth"]:
        works = (each["short"], each["long"])
        short, long = (get(work, each["method"]) for work in works)
        if short is not None and long is not None:
            sizes = [figures["works"][work] for work in works]
            tokens = (sizes[0]["batch"] * sizes[0]["length"], sizes[1]["batch"] * sizes[1]["length"])
            lines.append(growth(works, METHODS[each["method"]].label, short, long, tokens, each["per_token"]))
    return lines


def machine() -> dict[str, Any]:
    """The machine, without its name."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "load": os.getloadavg()[0],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def as_results(lines: Sequence[Line], found: Found, days: Mapping[str, str]) -> dict[str, Any]:
    """The content of `results.json`: the lines of the table and all measurements, with the date of each work."""
    return {
        "format": FORMAT,
        "measured": dict(days),
        "machine": machine(),
        "lines": [line.as_json() for line in lines],
        "measurements": [
            {"work": work, "method": method} | (asdict(m) if isinstance(m, Measured) else {"failed": m})
            for (work, method), m in found.items()
        ],
    }


@dataclass
class Results:
    """Measurements by work and method, the lines of `once`, and the date of each work."""

    found: Found
    once: list[Line]
    days: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Results":
        """The results of earlier runs; empty if there are none in this format."""
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if results.get("format") != FORMAT:
            return cls({}, [], {})
        found: Found = {}
        for each in results["measurements"]:
            key = (each.pop("work"), each.pop("method"))
            found[key] = each["failed"] if "failed" in each else Measured.of(each)
        once = [Line.of(line) for line in results["lines"] if line["work"] in ONCE]
        return cls(found, once, results["measured"])

    def take(self, found: Found, works: Iterable[str]) -> None:
        """Replace all results of these works."""
        self.days |= dict.fromkeys(works, _today())
        self.found = {key: each for key, each in self.found.items() if key[0] not in set(works)} | found

    def take_once(self, lines: Iterable[Line]) -> None:
        self.once = list(lines)
        self.days["once"] = _today()

    def lines(self, figures: Mapping[str, Any]) -> list[Line]:
        """The whole table, for works and rows that still have figures."""
        gpu = figures["gpu"]
        return [
            *lines_from(self.found, figures["works"], figures["rows"]),
            *relations(self.found, figures),
            *self.once,
            *lines_from(self.found, gpu["works"], dict.fromkeys(gpu["works"], gpu["rows"])),
        ]


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def measure_processor(
    figures: Mapping[str, Any], only: str, at_once: int, folder: Path, say: Any, measured: Results
) -> None:
    works = {work: sizes for work, sizes in figures["works"].items() if fnmatch(work, only)}
    folders = _write(works, folder, True)
    measured.take(run_jobs(works, figures["rows"], folders, Place(at_once=at_once), say), works)
    if fnmatch("once", only):
        say("loading, starting and analysing")
        read = folders.get("pythia-410m") or write_model(SHAPES["pythia-410m"], folder / "once")
        measured.take_once(all_lines(read, figures["once"]))


def measure_gpu(figures: Mapping[str, Any], only: str, folder: Path, say: Any, measured: Results) -> None:
    """bfloat16 on the GPU, one measurement at a time; the weights are made there."""
    if not torch.cuda.is_available():
        say("no GPU: its rows are not measured")
        return
    works = {work: sizes for work, sizes in figures["gpu"]["works"].items() if fnmatch(work, only)}
    rows: dict[str, Any] = dict.fromkeys(works, figures["gpu"]["rows"])
    place = Place("cuda", "bfloat16", 1, with_limits=True)
    measured.take(run_jobs(works, rows, _write(works, folder, False), place, say), works)


def _write(works: Mapping[str, Mapping[str, Any]], folder: Path, has_weights: bool) -> dict[str, Path]:
    names = {sizes["model"] for sizes in works.values()}
    return {
        name: write_model(SHAPES[name], folder / f"{name}-{has_weights}", has_weights=has_weights) for name in names
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="measure only on a GPU")
    parser.add_argument("--cpu", action="store_true", help="measure only on the processor")
    parser.add_argument("--only", default="*", metavar="GLOB", help="works whose name matches, or `once`")
    parser.add_argument("--at-once", type=int, default=1, help="processes side by side, one core each")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    figures = tomllib.loads(FIGURES.read_text())
    began = datetime.now(UTC)

    def say(what: str) -> None:
        print(f"{(datetime.now(UTC) - began).total_seconds():6.0f} s  {what}", file=sys.stderr, flush=True)

    measured = Results.read(asked.out)
    with tempfile.TemporaryDirectory() as scratch:
        if not asked.gpu:
            measure_processor(figures, asked.only, asked.at_once, Path(scratch), say, measured)
        if not asked.cpu:
            measure_gpu(figures, asked.only, Path(scratch), say, measured)
    lines = measured.lines(figures)
    asked.out.write_text(json.dumps(as_results(lines, measured.found, measured.days), indent=1) + "\n")
    print(table(lines))
    failed = failures(lines)
    for line in failed:
        print(f"FAILED: {line.work}, {line.what}: {line.quantity} {line.verdict}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
