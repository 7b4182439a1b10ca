"""Worlds that break the assumptions of the nulls on purpose, with nothing to find; and effects of three sizes in them.

    python -m tests.stress.hostile [PROBE ...]     # measures again (half an hour for all) and prints the table
    python -m tests.stress.hostile missing         # measures worlds that have no rates yet

The worlds are those of the certificates (`interp.certifying`, `interp.probes.worlds`). A number is *called* where the
page would say that it stands out: p at most .05 and its essential controls agree. Where the last token tells the
entropy, the entropy can be read; but not beyond the token, which the number declares.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.certifying.worlds import N_MODELS, World, judged_name, trials_of
from interp.findings import Findings, Scalar
from interp.registry import load_entry

N_WORLDS, N_PLANTED = 200, 20
SIZES = (0.0, 1.0, 2.0, 3.0)
"""Sizes of a planted effect, in steps of the world's own; 0 is the null."""
RATES = Path(__file__).with_name("hostile.json")

PROBES = (
    "attention_entropy", "qk_alignment", "value_axis", "manifold", "belief", "sula", "components", "orthogonality",
    "heads", "depth_use", "dynamics", "causal",
)  # fmt: skip


def _worlds() -> tuple[World, ...]:
    found = [trials_of(probe) for probe in PROBES]
    return tuple(world for trials in found if trials is not None for world in trials.worlds)


WORLDS = _worlds()


def found_in(world: World, seed: int, size: float) -> Findings:
    """What the probe of a world finds in it."""
    return world.findings(load_entry("probe", world.probe)(), seed, size)


def measure(world: World, n_worlds: int = N_WORLDS, first: int = 0) -> dict[str, dict[str, float]]:
    """By number: the share of worlds that are called at each size, and the share of intervals that hold the mean.

    Of a planted size `N_PLANTED` of 200 worlds are made, and half as many of fewer.
    """
    found: dict[str, dict[str, float]] = {number: {} for number in world.null}
    for size in SIZES if set(world.null) - set(world.unplanted) else SIZES[:1]:
        n = n_worlds if size == 0.0 else N_PLANTED if n_worlds == N_WORLDS else N_PLANTED // 2
        made = [found_in(world, seed, size) for seed in range(first, first + n)]
        for number in world.null if size == 0.0 else [name for name in world.null if name not in world.unplanted]:
            shown = [(findings, judged_name(findings, number)) for findings in made]
            called = [name in f.scalars and f.standing(name) in ("above", "below") for f, name in shown]
            found[number][f"called_{size:g}"] = round(float(np.mean(called)), 3)
            if size == 0.0:
                scalars = [f.scalars.get(name, Scalar.undefined("not given here")) for f, name in shown]
                values, bounds = np.array([s.value for s in scalars]), [s.interval for s in scalars]
                if any(bounds) and world.is_covered:
                    truths = [np.nanmean(values[model::N_MODELS]) for model in range(N_MODELS)]
                    held = [b[0] <= truths[i % N_MODELS] <= b[1] for i, b in enumerate(bounds) if b is not None]
                    found[number]["covered"] = round(float(np.mean(held)), 3)
    return found


def _measured(i: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    return measure(WORLDS[i])


def measure_all(probes: Sequence[str]) -> None:
    """Measure the worlds of these probes (of all where none is named) and write the rates beside this file.

    `missing` in place of a probe stands for the worlds without rates.
    """
    kept = json.loads(RATES.read_text())
    rates: dict[str, dict[str, dict[str, dict[str, float]]]] = kept["rates"] if probes else {}
    for world in WORLDS:
        if world.probe in probes:
            rates.pop(world.probe, None)
    asked = [i for i, world in enumerate(WORLDS) if not probes or {"missing", world.probe} & set(probes)]
    chosen = [i for i in asked if WORLDS[i].name not in rates.get(WORLDS[i].probe, {})]
    with ProcessPoolExecutor(2) as workers:
        for i, found in zip(chosen, workers.map(_measured, chosen), strict=True):
            rates.setdefault(WORLDS[i].probe, {})[WORLDS[i].name] = found
            print(WORLDS[i].probe, WORLDS[i].name, found, flush=True)
            rates = _in_order(rates)
            RATES.write_text(json.dumps(kept | {"n_worlds": N_WORLDS, "rates": rates}, indent=1) + "\n")


def _in_order(rates: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Probes and worlds as `WORLDS` has them."""
    found: dict[str, dict[str, Any]] = {}
    for world in WORLDS:
        if world.name in rates.get(world.probe, {}):
            found.setdefault(world.probe, {})[world.name] = rates[world.probe][world.name]
    return found


if __name__ == "__main__":
    measure_all(sys.argv[1:])
