"""Sweeps: settings varied one at a time or in every combination, each trained with several seeds.

One at a time, the first value of each setting is the reference; a setting that only some architectures have is varied
on the first named one that has it. A training that fails is reported and stops nothing; the same command resumes.
"""

import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from interp.errors import InterpError, UsageError
from interp.statistics.intervals import t_mean
from interp.system.whole_files import begins_with, telling, writing
from interp.tunnel import Task

from ..networks.architectures import NEEDED, has
from ..training.loop import OnStep
from ..training.plan import Recipe, TrainingPlan
from .train_tunnel import FinishedTraining, Keep, make_plan, side_by_side, train_tunnel

SWEEP_NAME = "sweep.json"
SWEEP_FORMAT = 1
FIGURES = ("kl_bits", "mae_per_sequence_bits")
Settings = Mapping[str, Any]


@dataclass
class Cell:
    """One combination of settings: its plans and their results by seed, a finished training or an error."""

    settings: Settings
    plans: Mapping[int, TrainingPlan]
    ended: dict[int, FinishedTraining | str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The entry in `sweep.json`."""
        ended = [(seed, self.ended[seed]) for seed in self.plans if seed in self.ended]
        finished = [(seed, each) for seed, each in ended if isinstance(each, FinishedTraining)]
        cards = [training.card for _, training in finished]
        return {
            "settings": dict(self.settings),
            "n_parameters": cards[0].n_parameters if cards else None,
            "runs": [_run(seed, training) for seed, training in finished],
            "figures": {name: _over_seeds([card.figures[name].value for card in cards]) for name in FIGURES},
            "core_seconds": _over_seeds([card.core_seconds for card in cards]),
            "baselines": {name: dict(errors) for name, errors in cards[0].baselines.items()} if cards else {},
            "failures": {str(seed): words for seed, words in ended if isinstance(words, str)},
        }


def cells(
    kind: type[Task],
    fixed: Settings,
    varied: Mapping[str, Sequence[Any]],
    n_seeds: int,
    *,
    crossed: bool = False,
    keep: Keep = (),
) -> list[Cell]:
    """Every combination (`crossed`), or one setting varied at a time; `UsageError` if one cannot be trained."""
    faults = [f"{name} is set and varied" for name in sorted(set(fixed) & set(varied))]
    faults += [f"{name} has no value" for name, each in varied.items() if not each]
    faults += ["seeds are counted by --seeds"] if "seed" in varied else []
    if faults:
        fix = "Name every field once, with one value or more."
        raise UsageError(asked=f"a sweep over {', '.join(varied)}", found=faults[0], fix=fix)
    values = {name: [x for i, x in enumerate(each) if x not in each[:i]] for name, each in varied.items()}
    first_seed = Recipe(seed=fixed.get("seed", 0)).seed
    every = (dict(zip(values, each, strict=True)) for each in product(*values.values()))
    found = []
    for settings in every if crossed else _one_at_a_time(values, fixed):
        plans = {}
        for seed in range(first_seed, first_seed + n_seeds):
            given, variant = {**fixed, **settings, "seed": seed}, _variant(settings, seed)
            try:
                plans[seed] = make_plan(kind, given, variant=variant, keep=keep)
            except InterpError as error:
                raise UsageError(
                    asked=f"a sweep with {label(settings)}",
                    found=f"nothing was trained, as {error.asked} makes no sense: {error.found}",
                    fix=f"{error.fix} Without --crossed each setting is varied where it can be.",
                ) from error
        found.append(Cell(settings, plans))
    return found


def label(settings: Settings) -> str:
    """A combination in words, for messages."""
    return ", ".join(f"{name} = {value}" for name, value in settings.items()) or "the only combination"


def _one_at_a_time(values: Mapping[str, Sequence[Any]], fixed: Settings) -> Iterator[Settings]:
    """Every architecture with the reference values, then each other value where it can be varied."""
    named = values.get("arch", ())
    archs = [str(arch) for arch in named] or [str(fixed.get("arch", "gpt-neox"))]
    common = {name: each[0] for name, each in values.items() if name != "arch"}

    def reference(arch: str) -> dict[str, Any]:
        mine = {name: value for name, value in common.items() if has(arch, name)}
        return {**({"arch": arch} if named else {}), **mine}

    for arch in archs:
        yield reference(arch)
    for name in common:
        home = next((arch for arch in archs if has(arch, name)), None)
        if home is None:
            raise UsageError(
                asked=f"a sweep over {name} with {', '.join(archs)}",
                found=f"of these none has {NEEDED[name]}",
                fix="Name an architecture that has it among --arch, or leave this setting out.",
            )
        for value in values[name][1:]:
            yield {**reference(home), name: value}


def run_sweep(
    task: str,
    swept: Sequence[Cell],
    out: Path,
    on_begin: Callable[[TrainingPlan], OnStep | None],
) -> dict[str, Any]:
    """Train every plan in parallel and write the table after each; `on_begin(plan)` may return its `on_step`."""
    places = [(cell, seed) for cell in swept for seed in cell.plans]
    plans = [cell.plans[seed] for cell, seed in places]
    for i, ended in side_by_side(partial(_attempt, out=out, on_begin=on_begin), plans, out):
        cell, seed = places[i]
        cell.ended[seed] = ended
        _write(task, swept, out)
    return _write(task, swept, out)


def _attempt(
    plan: TrainingPlan, out: Path, on_begin: Callable[[TrainingPlan], OnStep | None]
) -> FinishedTraining | str:
    """The finished training of a plan, or its error as text."""
    try:
        return train_tunnel(plan, out, on_begin(plan))
    except InterpError as error:
        return str(error)
    except Exception:
        return traceback.format_exc()


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean over seeds with its 95 % t interval, cut at 0, or the reason for none."""
    if not values:
        return {"mean": None, "interval": None, "interval_reason": "no training was finished", "n_seeds": 0}
    found = t_mean(values)
    interval = {"interval": [max(found.low, 0.0), found.high], "interval_method": "t over seeds"}
    none = {"interval": None, "interval_reason": "one seed"}
    return {"mean": found.value, **(interval if len(values) > 1 else none), "n_seeds": len(values)}


def _run(seed: int, training: FinishedTraining) -> dict[str, Any]:
    figures = {name: training.card.figures[name] for name in FIGURES}
    return {
        "seed": seed,
        "folder": training.folder.name,
        "figures": {name: {"value": f.value, "interval": [f.low, f.high]} for name, f in figures.items()},
        "interval_method": f"bootstrap over {training.card.n_eval} sequences",
        "core_seconds": training.card.core_seconds,
        "stage": training.stage,
        "n_stages": training.n_stages,
    }


def _write(task: str, swept: Sequence[Cell], out: Path) -> dict[str, Any]:
    table = {"format": SWEEP_FORMAT, "task": task, "cells": [cell.record() for cell in swept]}
    is_ours = begins_with('{\n  "format": ')
    with telling(f"writing the sweep to {out}"), writing(out / SWEEP_NAME, is_ours) as draft:
        draft.write_text(json.dumps(table, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return table


def _variant(settings: Settings, seed: int) -> str:
    """The suffix of the folder of a run: `n_layers2-window6-seed0`."""
    parts = [f"{name}{value}" for name, value in settings.items() if name != "arch"]
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part).strip("-") for part in [*parts, f"seed{seed}"])
