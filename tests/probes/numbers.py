"""Every number that the probes give on six sets of data, in short, as `numbers.csv` holds them.

    python -m tests.probes.numbers    # where numbers are meant to move: writes numbers.csv anew; read its diff

The data are noise, trained networks on their tasks, with every edit, and texts. Of each scalar's parts and of each
column of numbers, a row says how many there are, their sum weighted by place, their norm, and by how much these two
move where torch and BLAS compute as on other processors.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from interp.probes.components import Components

import interp
from interp.findings import Findings
from interp.probe import Probe
from interp.registry import entries
from tests.paths import ROOT, SHARED
from tests.probes.test_degenerate import READ_UNEDITED, noise, small

NUMBERS = ROOT / "tests" / "probes" / "numbers.csv"
STORIES = SHARED / "models" / "stories260K"
LESS = {
    "n_prompts": 12, "n_sula": 0, "n_exchanged": 24, "n_random": 3, "n_sets": 2, "n_screened": 3, "n_draws": 2,
    "n_sampled": 4, "doses": (0.0, 1.0), "n_controls": 19,
}  # fmt: skip
OBSERVING = ("attention_entropy", "belief", "components", "manifold", "orthogonality", "qk_alignment", "value_axis")
PROCESSORS: tuple[Mapping[str, str], ...] = (
    {},
    {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Nehalem", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
)

Sums = tuple[int, float, float]


def on_noise() -> Mapping[str, Findings]:
    return {name: small(name).analyse(noise(small(name)), {}) for name in READ_UNEDITED}


def on_model(model: str, *probes: str | Probe, **options: Any) -> Mapping[str, Findings]:
    chosen = [_smaller(probe) if isinstance(probe, str) else probe for probe in probes]
    return interp.run(model, probes=chosen, out=None, quiet=True, **options).findings


def _smaller(name: str) -> Probe:
    probe = small(name)
    return replace(probe, **{key: value for key, value in LESS.items() if key in probe.parameters()})


CASES: dict[str, Callable[[], Mapping[str, Findings]]] = {
    "noise": on_noise,
    "bijection": partial(on_model, "tunnel:bijection-gpt-neox", *set(entries("probe")) - {"workspace"}, n_pool=60),
    "hidden states": partial(on_model, "tunnel:hmm-llama", *OBSERVING, n_pool=40),
    "experts": partial(on_model, "tunnel:mixture-mixtral", Components(n_permutations=24, experts=True), n_pool=30),
    "texts": partial(on_model, str(STORIES), *OBSERVING, "heads", "depth_use", n_pool=60),
    "evidence": partial(on_model, str(STORIES), "sula", n_pool=60),
}


def sums(case: str) -> dict[str, Sums]:
    """What is measured now."""
    found = CASES[case]()
    return {f"{probe}.{name}": _sums(values) for probe in sorted(found) for name, values in _numbers(found[probe])}


def _numbers(found: Findings) -> Iterator[tuple[str, np.ndarray]]:
    for name, scalar in found.scalars.items():
        null = () if scalar.null is None else (scalar.null.value, *scalar.null.band)
        parts = (scalar.value, *(scalar.interval or ()), *null, scalar.n, scalar.n_clusters)
        yield name, np.array([np.nan if part is None else part for part in parts], dtype=float)
        yield f"{name}.p", np.array([np.nan if scalar.p is None else scalar.p])
    for table, columns in found.tables.items():
        for name, column in columns.columns.items():
            if column.dtype.kind in "iufb":
                yield f"{table}.{name}", column.astype(float)


def _sums(values: np.ndarray) -> Sums:
    kept = np.isfinite(values)
    by_place = values[kept] @ np.linspace(1.0, 2.0, len(values))[kept]
    return int(kept.sum()), float(f"{by_place:.6g}"), float(f"{np.linalg.norm(values[kept]):.6g}")


def written(case: str) -> dict[str, tuple[Sums, float]]:
    """What was measured when the file was written, and by how much it moves from processor to processor."""
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        return {name: ((int(n), float(by_place), float(norm)), float(moves))
                for of, name, n, by_place, norm, moves in csv.reader(file) if of == case}  # fmt: skip


def write() -> None:
    """Measure in a process a processor; numbers that another does not have are left out."""
    measured = [json.loads(_elsewhere(processor)) for processor in PROCESSORS]
    with NUMBERS.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        for case, here in measured[0].items():
            for name, numbers in here.items():
                others = [other[case][name] for other in measured[1:]]
                if all(other[0] == numbers[0] for other in others):
                    moves = np.abs(np.subtract(others, numbers)).max()
                    rows.writerow([case, name, *numbers, f"{moves:.2g}"])


def _elsewhere(processor: Mapping[str, str]) -> bytes:
    command = [sys.executable, "-m", "tests.probes.numbers", "--here"]
    return subprocess.run(command, env=os.environ | processor, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    if "--here" in sys.argv:
        print(json.dumps({case: sums(case) for case in CASES}))
    else:
        write()
