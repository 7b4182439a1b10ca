"""Checkpoints: a trained network is evaluated and saved with its card and learning curve.

A folder holds what `save_pretrained` writes, the card `tunnel.json`, which is enough to train the network again, the
learning curve `curve.csv`, and under `steps/` the intermediate checkpoints, if any.
"""

import csv
import dataclasses
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from interp.errors import ModelError, UnknownName, UsageError
from interp.records.tunnel_card import TunnelCard, digests_of, write_card
from interp.tunnel import Sequences, Task

from ..networks.networks import predict
from ..networks.weights import save_weights
from ..training.loop import CurvePoint, TrainingState, keeping_in
from ..training.plan import TrainingPlan
from ..training.sampling import evaluation_generators, evaluation_sequences, share_seen
from .evaluation import Evaluation, LogProbs, by_predictor, evaluate, extrapolate, longer

EVAL_SEED = 20_000
N_EVAL = 4000
TOLERANCE = 1.0
"""A rebuild may be off by a factor of two: processors round sums differently, and a thousand steps amplify it."""
SEEN = "seen_share"
CURVE_NAME = "curve.csv"
_CURVE_COLUMNS = ("step", "stage", "excess_bits", "core_seconds")


def evaluate_model(
    model: PreTrainedModel, task: Task, *, n: int = N_EVAL, seed: int = EVAL_SEED, horizon: int | None = None
) -> Evaluation:
    """Compare a network with the exact posterior on fresh sequences; with a `horizon` also within and beyond it."""
    sequences = evaluation_sequences(task, n, seed)
    log_probs = predict(model, sequences.tokens, sequences.scored)
    return evaluate_sides(log_probs, sequences, evaluation_generators(seed)[1], horizon)


def evaluate_sides(
    log_probs: LogProbs, sequences: Sequences, resamples: np.random.Generator, horizon: int | None
) -> Evaluation:
    """Compare predictions with the posterior, and with a `horizon` also those within and beyond it."""
    sides = {"": slice(None)}
    if horizon is not None and horizon < len(sequences.scored):
        sides |= {"within_horizon.": slice(horizon), "beyond_horizon.": slice(horizon, None)}
    parts = {side: evaluate(log_probs[:, at], sequences.at(at), resamples) for side, at in sides.items()}
    figures = {side + name: figure for side, part in parts.items() for name, figure in part.figures.items()}
    return dataclasses.replace(parts[""], figures=figures)


def evaluate_longer(
    model: PreTrainedModel, task: Task, n_observations: int, *, n: int = N_EVAL, seed: int = EVAL_SEED
) -> Evaluation:
    """The same on sequences of more observations than in training."""
    sequences = evaluation_sequences(longer(task, n_observations), n, seed)
    log_probs = predict(model, sequences.tokens, sequences.scored)
    return extrapolate(log_probs, sequences, task.n_positions, evaluation_generators(seed)[1])


def check_limits(task: Task, limits: Mapping[str, float], horizon: int | None) -> None:
    """Raise `UsageError` for a limit on a figure that the card will lack, or one that is not finite."""
    if not limits:
        return
    sequences = evaluation_sequences(task, N_EVAL, EVAL_SEED)
    uniform = np.full((*sequences.targets.shape, task.vocab_size), -np.log(task.vocab_size))
    known = [*evaluate_sides(uniform, sequences, evaluation_generators(EVAL_SEED)[1], horizon).figures, SEEN]
    for name, limit in limits.items():
        if name not in known:
            raise UnknownName("figure", name, known)
        if not math.isfinite(limit):
            raise UsageError(asked=f"the limit {name} = {limit}", found="it is not finite", fix="Give a number.")


def save(state: TrainingState, plan: TrainingPlan, folder: Path) -> TunnelCard:
    """Evaluate a trained network and write its checkpoint folder."""
    task, network, recipe = plan.task, plan.network, plan.recipe
    model = state.model.to("cpu")  # pyrefly: ignore[bad-argument-type]
    stored = getattr(torch, recipe.stored)
    for weight in model.parameters():  # rounded as stored; buffers are not
        weight.data = weight.data.to(stored).to(torch.float32)
    evaluation = evaluate_model(model, task, horizon=recipe.horizon)
    figures = dict(evaluation.figures)
    evaluated = evaluation_sequences(task, N_EVAL, EVAL_SEED).tokens
    figures[SEEN] = share_seen(task, recipe, state.stage_ends, state.step, evaluated)
    card = TunnelCard(
        task=task.name,
        parameters=task.describe(),
        arch=network.arch,
        network={name: size for name, size in dataclasses.asdict(network).items() if name != "arch"},
        n_parameters=model.num_parameters(),
        recipe={name: value for name, value in dataclasses.asdict(recipe).items() if name != "seed"},
        seed=recipe.seed,
        step=state.step,
        figures={name: dataclasses.replace(figure, limit=plan.limits.get(name)) for name, figure in figures.items()},
        n_eval=evaluation.n,
        eval_seed=EVAL_SEED,
        tolerance=TOLERANCE,
        core_seconds=round(state.core_seconds, 1),
        environment={
            "python": platform.python_version(),
            "machine": platform.machine(),
            **{package: version(package) for package in ("torch", "transformers")},
        },
        variant=plan.variant,
        init=None if plan.init is None else plan.init.record(),
        baselines=by_predictor(evaluation.baselines),
    )
    with keeping_in(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(model, folder, stored)
        card = dataclasses.replace(card, files=digests_of(folder))
        write_card(card, folder)
        _write_curve(state, folder / CURVE_NAME)
    return card


def _write_curve(state: TrainingState, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_CURVE_COLUMNS)
        writer.writerows((step, stage, f"{bits:.6g}", f"{spent:.2f}") for step, stage, bits, spent in state.curve)


def read_curve(folder: Path) -> list[CurvePoint]:
    """The learning curve of a finished training; `ModelError` if the file is missing or damaged."""
    try:
        with (folder / CURVE_NAME).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        if tuple(header) != _CURVE_COLUMNS:
            raise ValueError(f"its columns are {', '.join(header)}")
        return [(int(step), int(stage), float(bits), float(spent)) for step, stage, bits, spent in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise ModelError(
            asked=f"the learning curve {folder / CURVE_NAME}",
            found=f"it cannot be read ({error})",
            fix="Restore the file, or train the tunnel again: `interp tunnel train`.",
        ) from error
