"""How far a training has come: its counters, its curve, and when it has learnt the task."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from .recipe import Recipe

N_SMOOTHED = 10
N_CURVE_POINTS = 200
COUNTERS = ("step", "stage", "steps_in_stage", "excess_bits", "core_seconds", "stage_ends", "curve")
CurvePoint = tuple[int, int, float, float]
"""Steps done, stage, smoothed excess loss in bits, core-seconds."""


@dataclass
class Progress:
    """Where a training is: everything that changes from step to step, and nothing else.

    `stage_ends` are the steps after which the curriculum moved on. `curve` has a point about every half per cent of the
    steps.
    """

    model: PreTrainedModel
    optimisers: tuple[torch.optim.Optimizer, ...]
    rng: np.random.Generator
    step: int = 0
    stage: int = 0
    steps_in_stage: int = 0
    excess_bits: float = math.nan
    core_seconds: float = 0.0
    stage_ends: list[int] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)


def advance(progress: Progress, excess_bits: float, n_stages: int, recipe: Recipe, core_seconds: float) -> None:
    """Count a step that was done: its time, its place on the curve, and whether its stage is mastered."""
    stage = progress.stage
    _judge(progress, excess_bits, n_stages, recipe.gate_bits)
    progress.step += 1
    progress.core_seconds += core_seconds
    if progress.step % math.ceil(recipe.n_steps / N_CURVE_POINTS) == 0 or progress.step == recipe.n_steps:
        progress.curve.append((progress.step, stage, progress.excess_bits, progress.core_seconds))
    if progress.stage > stage:
        progress.stage_ends.append(progress.step)


def _judge(progress: Progress, excess_bits: float, n_stages: int, gate_bits: float) -> None:
    """Smooth over about ten batches of a stage; the next stage starts with a clean slate."""
    progress.steps_in_stage += 1
    weight = 1.0 / min(progress.steps_in_stage, N_SMOOTHED)
    before = 0.0 if progress.steps_in_stage == 1 else progress.excess_bits
    progress.excess_bits = (1.0 - weight) * before + weight * excess_bits
    is_mastered = progress.steps_in_stage >= N_SMOOTHED and progress.excess_bits < gate_bits
    if is_mastered and progress.stage < n_stages - 1:
        progress.stage += 1
        progress.steps_in_stage = 0
