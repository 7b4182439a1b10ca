"""Sweeps: every combination of some settings, each trained with several seeds, and what that gives.

Trainings of a sweep are matched: they share everything but what is varied. A combination that makes no sense, or a
training that fails, is reported in its place and stops nothing. What is finished is not trained again, so the same
command goes on where it was stopped.
"""

import json
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from interp.errors import InterpError, UsageError
from interp.tunnel import Task
from wind_tunnels.plans import Done, Plan, carry_out, configure

SWEEP_NAME = "sweep.json"
SWEEP_FORMAT = 1
FIGURES = ("kl_bits", "mae_per_sequence_bits")
Settings = Mapping[str, Any]


@dataclass
class Cell:
    """One combination of settings: its plans by seed, and what became of them."""

    settings: Settings
    plans: dict[int, Plan] = field(default_factory=dict)
    done: dict[int, Done] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As `sweep.json` keeps it."""
        cards = [done.card for done in self.done.values()]
        return {
            "settings": dict(self.settings),
            "n_parameters": cards[0].n_parameters if cards else None,
            "runs": [_run(seed, done) for seed, done in self.done.items()],
            "figures": {name: over_seeds([card.figures[name].value for card in cards]) for name in FIGURES},
            "core_seconds": over_seeds([card.core_seconds for card in cards]),
            "baselines": {name: dict(errors) for name, errors in cards[0].baselines.items()} if cards else {},
            "failures": {str(seed): words for seed, words in self.failures.items()},
        }


def cells(kind: type[Task], fixed: Settings, varied: Mapping[str, Sequence[Any]], n_seeds: int) -> list[Cell]:
    """Every combination with its plans; what cannot be trained has its refusal at once, before anything is."""
    repeated = sorted(set(fixed) & set(varied))
    if repeated or "seed" in varied:
        raise UsageError(
            asked=f"a sweep over {', '.join(varied)}",
            found=f"{repeated[0]} is set and varied" if repeated else "seeds are counted by --seeds",
            fix="Name every field once.",
        )
    first_seed = int(fixed.get("seed", 0))
    found: list[Cell] = []
    for values in product(*(dict.fromkeys(map(_hashable, each)) for each in varied.values())):
        cell = Cell(dict(zip(varied, values, strict=True)))
        for seed in range(first_seed, first_seed + n_seeds):
            try:
                settings = {**fixed, **cell.settings, "seed": seed}
                cell.plans[seed] = configure(kind, settings, variant=_variant(cell.settings, seed))
            except InterpError as error:
                cell.failures[seed] = str(error)
        found.append(cell)
    return found


def run_sweep(
    task: str,
    swept: Sequence[Cell],
    out: Path,
    begun: Callable[[Plan], Callable[..., None] | None],
) -> dict[str, Any]:
    """Carry out every plan; the table is written after each. `begun` hears of a plan and may return its `on_step`."""
    out.mkdir(parents=True, exist_ok=True)
    for cell in swept:
        for seed, plan in cell.plans.items():
            try:
                cell.done[seed] = carry_out(plan, out, begun(plan))
            except InterpError as error:
                cell.failures[seed] = str(error)
            except Exception:  # of any kind: it is told in full, and the others go on
                cell.failures[seed] = traceback.format_exc()
            _write(task, swept, out)
    return _write(task, swept, out)


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean over seeds of what cannot be negative with its 95 % t interval, cut at 0, or why there is none."""
    n = len(values)
    if n == 0:
        return {"mean": None, "interval": None, "interval_reason": "no training was finished", "n_seeds": 0}
    mean = float(np.mean(values))
    if n == 1:
        return {"mean": mean, "interval": None, "interval_reason": "one seed", "n_seeds": 1}
    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return {
        "mean": mean,
        "interval": [max(mean - half, 0.0), mean + half],
        "interval_method": "t over seeds",
        "n_seeds": n,
    }


def _run(seed: int, done: Done) -> dict[str, Any]:
    figures = {name: done.card.figures[name] for name in FIGURES}
    return {
        "seed": seed,
        "folder": done.folder.name,
        "figures": {name: {"value": f.value, "interval": [f.low, f.high]} for name, f in figures.items()},
        "interval_method": f"bootstrap over {done.card.n_eval} sequences",
        "core_seconds": done.card.core_seconds,
        "stage": done.stage,
        "n_stages": done.n_stages,
    }


def _write(task: str, swept: Sequence[Cell], out: Path) -> dict[str, Any]:
    table = {"format": SWEEP_FORMAT, "task": task, "cells": [cell.record() for cell in swept]}
    (out / SWEEP_NAME).write_text(json.dumps(table, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return table


def _variant(settings: Settings, seed: int) -> str:
    """What tells the folder of a run from the others: `n_layers2-window6-seed0`; the architecture is in the name."""
    parts = [f"{name}{value}" for name, value in settings.items() if name != "arch"]
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-") for part in [*parts, f"seed{seed}"])


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
