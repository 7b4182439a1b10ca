"""Training: one loop for every task and network.

Cross-entropy on sampled labels at the scored positions, fresh sequences in every batch. What the loop knows
of the posterior is only its mean entropy, against which success is judged: the loss minus that is an
unbiased estimate of KL(posterior || network). `distil` puts the posterior itself in place of the labels and
is never mixed with them.

Everything a run depends on is in the task, the network, the recipe and the checkpoint it starts from; a run
stopped at any step and resumed gives the same weights bit for bit.
"""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch.nn import functional as F
from transformers import PreTrainedModel

from interp.drafts import writing
from interp.errors import ModelError, UsageError
from interp.information import BITS_PER_NAT
from interp.stopping import Stopped, remember, whole
from interp.tunnel import Sequences, Task
from wind_tunnels.architectures import Network
from wind_tunnels.networks import build, logits_at, switch_off_attention
from wind_tunnels.optimisers import make_optimisers, set_rates
from wind_tunnels.recipe import Recipe
from wind_tunnels.stream import Stream, seed_of_weights, stream_of, training_generator
from wind_tunnels.weights import Init, load_weights

STATE_NAME = "training.pt"
SECONDS_BETWEEN_SAVES = 30.0
N_SMOOTHED = 10
N_CURVE_POINTS = 200
_COUNTERS = ("step", "stage", "steps_in_stage", "excess_bits", "core_seconds", "stage_ends", "curve")

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


def train(
    task: Task,
    network: Network,
    recipe: Recipe,
    *,
    init: Init | None = None,
    folder: Path | None = None,
    on_step: Callable[[Progress], None] | None = None,
    save_every: int = 100,
    keep: Collection[int] = (),
) -> Progress:
    """Train to the end of the recipe, from where `folder` left off if it holds an unfinished run of this plan.

    With a folder, the state is kept there every `save_every` steps (or half a minute), and the weights of the steps in
    `keep` and of the recipe's log-spaced ones in `steps/<step>/`. `init` starts from the weights of a checkpoint.
    `on_step` hears of every step; raising from it stops the run at a point it can resume from.
    """
    plan = describe(task, network, recipe, init)
    progress = start(task, network, recipe, init)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _resume(progress, plan, folder)
    stream = stream_of(task, recipe)
    kept = {*recipe.checkpoint_steps(), *keep} if folder is not None else set()
    update_here = _updater(progress, recipe)
    progress.model.train()
    saved = time.monotonic()
    try:
        while True:
            if folder is not None and progress.step in kept:
                with _told(folder):
                    progress.model.save_pretrained(folder / "steps" / str(progress.step))
            is_due = progress.step % save_every == 0 or time.monotonic() - saved > SECONDS_BETWEEN_SAVES
            if folder is not None and (is_due or progress.step == recipe.n_steps):
                _save(progress, plan, folder)
                saved = time.monotonic()
            if progress.step == recipe.n_steps:
                break
            with whole():
                update_here(progress, stream, recipe)
            if on_step is not None:
                on_step(progress)
    except Stopped:
        if folder is not None:
            _save(progress, plan, folder)
        raise
    progress.model.eval()
    return progress


def describe(task: Task, network: Network, recipe: Recipe, init: Init | None = None) -> dict[str, Any]:
    """Everything a training depends on, as plain data that JSON gives back unchanged."""
    plan = {
        "task": task.name,
        "parameters": task.describe(),
        "network": dataclasses.asdict(network),
        "recipe": dataclasses.asdict(recipe),
        "init": None if init is None else init.record(),
    }
    return json.loads(json.dumps(plan))


def start(task: Task, network: Network, recipe: Recipe, init: Init | None = None) -> Progress:
    """Step 0: weights and data from two streams of the recipe's seed, or the weights of a checkpoint."""
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(asked="training on cuda", found="torch finds no GPU here", fix="Use cpu, or another machine.")
    if init is None:
        model = build(network, task, torch.Generator().manual_seed(seed_of_weights(recipe)))
    else:
        model = load_weights(init.folder)
        switch_off_attention(model, network)
    model.to(recipe.device)  # pyright: ignore[reportArgumentType]
    optimisers = make_optimisers(model, recipe)
    return Progress(model, optimisers, training_generator(recipe))


def update(progress: Progress, stream: Stream, recipe: Recipe) -> None:
    """One batch, one step of the optimisers, and a move to the next stage where this one is mastered."""
    began = time.process_time()
    sequences = stream.batch(progress.rng, progress.stage)
    loss = cross_entropy(progress.model, sequences, recipe.target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(progress.model.parameters(), recipe.clip)
    set_rates(progress.optimisers, recipe.rate(progress.step))
    for optimiser in progress.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    excess = loss.item() * BITS_PER_NAT - float(sequences.columns["bayes_entropy_bits"].mean())
    advance(progress, excess, len(stream.stages), recipe, time.process_time() - began)


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


def _updater(progress: Progress, recipe: Recipe) -> Callable[[Progress, Stream, Recipe], None]:
    if recipe.device == "cpu":
        return update
    from wind_tunnels.captured import DeviceUpdate

    return DeviceUpdate(progress, use_graphs=True)


def cross_entropy(
    model: torch.nn.Module, sequences: Sequences, target: Literal["labels", "distil"]
) -> Float[torch.Tensor, ""]:
    """Mean cross-entropy in nats over sequences and scored positions, over the whole vocabulary."""
    logits = logits_at(model, torch.from_numpy(sequences.tokens), torch.from_numpy(sequences.scored))
    if target == "labels":
        return F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(sequences.targets).flatten())
    log_q = F.log_softmax(logits, dim=-1)[..., torch.from_numpy(sequences.slice_ids)]
    return -(torch.from_numpy(sequences.posterior).float() * log_q).sum(dim=-1).mean()


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


def _save(progress: Progress, plan: dict[str, Any], folder: Path) -> None:
    state = {
        "plan": plan,
        "model": progress.model.state_dict(),
        "optimisers": [o.state_dict() for o in progress.optimisers],
        "rng": progress.rng.bit_generator.state,
        **{name: getattr(progress, name) for name in _COUNTERS},
    }
    with _told(folder), writing(folder / STATE_NAME) as draft:
        torch.save(state, draft)
    _remember(progress, plan, folder)


def _remember(progress: Progress, plan: dict[str, Any], folder: Path) -> None:
    remember(f"step {progress.step} of {plan['recipe']['n_steps']} of the training is kept in {folder}")


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the libraries raise where nothing can be written, in words."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            asked=f"keeping the training in {folder}",
            found=f"it cannot be written ({str(error).splitlines()[0]})",
            fix="Free some space, or make it writable; the same command goes on from the state that was kept last.",
        ) from error


def _resume(progress: Progress, plan: dict[str, Any], folder: Path) -> None:
    path = folder / STATE_NAME
    if not path.exists():
        return
    state = torch.load(path, weights_only=True, map_location="cpu")
    if state["plan"] != plan:
        raise ModelError(
            asked=f"training in {folder}",
            found="an unfinished training of another task, network or recipe lies there",
            fix=f"Choose another folder, or remove {path} to start anew.",
        )
    progress.model.load_state_dict(state["model"])
    for optimiser, its_state in zip(progress.optimisers, state["optimisers"], strict=True):
        optimiser.load_state_dict(its_state)
    progress.rng.bit_generator.state = state["rng"]
    for name in _COUNTERS:
        setattr(progress, name, state[name])
    _remember(progress, plan, folder)
