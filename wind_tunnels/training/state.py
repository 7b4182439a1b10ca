"""The state of a training: what changes from step to step, its learning curve, and when a stage is mastered."""

import math
from collections.abc import Callable
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
class TrainingState:
    """Everything of a training that changes from step to step, and nothing else.

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


OnStep = Callable[[TrainingState], None]
"""Hears of every step of a training."""


def advance(state: TrainingState, excess_bits: float, n_stages: int, recipe: Recipe, core_seconds: float) -> None:
    """Count a step that was done: its time, its place on the curve, and whether its stage is mastered.

    The excess is smoothed over about ten batches of a stage; the next stage starts with a clean slate.
    """
    stage = state.stage
    state.steps_in_stage += 1
    weight = 1.0 / min(state.steps_in_stage, N_SMOOTHED)
    before = 0.0 if state.steps_in_stage == 1 else state.excess_bits
    state.excess_bits = (1.0 - weight) * before + weight * excess_bits
    is_mastered = state.steps_in_stage >= N_SMOOTHED and state.excess_bits < recipe.gate_bits
    if is_mastered and stage < n_stages - 1:
        state.stage += 1
        state.steps_in_stage = 0
    state.step += 1
    state.core_seconds += core_seconds
    if state.step % math.ceil(recipe.n_steps / N_CURVE_POINTS) == 0 or state.step == recipe.n_steps:
        state.curve.append((state.step, stage, state.excess_bits, state.core_seconds))
    if state.stage > stage:
        state.stage_ends.append(state.step)
