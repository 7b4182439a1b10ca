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
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch.nn import functional as F

from interp.errors import ModelError, UsageError
from interp.information import BITS_PER_NAT
from interp.system.signals import Stopped, remember, whole
from interp.system.whole_files import writing
from interp.tunnel import Sequences, Task

from ..networks.architectures import Network
from ..networks.networks import build, logits_at, switch_off_attention
from ..networks.weights import Init, load_weights
from .optimisers import make_optimisers, set_rates
from .recipe import Recipe
from .state import COUNTERS, OnStep, TrainingState, advance
from .stream import Stream, seed_of_weights, stream_of, training_generator

STATE_NAME = "training.pt"
SECONDS_BETWEEN_SAVES = 30.0


def train(
    task: Task,
    network: Network,
    recipe: Recipe,
    *,
    init: Init | None = None,
    folder: Path | None = None,
    on_step: OnStep | None = None,
    save_every: int = 100,
    keep: Collection[int] = (),
) -> TrainingState:
    """Train to the end of the recipe, from where `folder` left off if it holds an unfinished run of this plan.

    With a folder, the state is kept there every `save_every` steps (or half a minute), and the weights of the steps in
    `keep` and of the recipe's log-spaced ones in `steps/<step>/`. `init` starts from the weights of a checkpoint.
    `on_step` hears of every step; raising from it stops the run at a point it can resume from.
    """
    plan = describe(task, network, recipe, init)
    state = start(task, network, recipe, init)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _resume(state, plan, folder)
    stream = stream_of(task, recipe)
    kept = {*recipe.checkpoint_steps(), *keep} if folder is not None else set()
    state.model.train()
    saved = time.monotonic()
    try:
        while True:
            if folder is not None and state.step in kept:
                with _told(folder):
                    state.model.save_pretrained(folder / "steps" / str(state.step))
            is_due = state.step % save_every == 0 or time.monotonic() - saved > SECONDS_BETWEEN_SAVES
            if folder is not None and (is_due or state.step == recipe.n_steps):
                _save(state, plan, folder)
                saved = time.monotonic()
            if state.step == recipe.n_steps:
                break
            with whole():
                update(state, stream, recipe)
            if on_step is not None:
                on_step(state)
    except Stopped:
        if folder is not None:
            _save(state, plan, folder)
        raise
    state.model.eval()
    return state


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


def start(task: Task, network: Network, recipe: Recipe, init: Init | None = None) -> TrainingState:
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
    return TrainingState(model, optimisers, training_generator(recipe))


def update(state: TrainingState, stream: Stream, recipe: Recipe) -> None:
    """One batch, one step of the optimisers, and a move to the next stage where this one is mastered."""
    began = time.process_time()
    sequences = stream.batch(state.rng, state.stage)
    loss = cross_entropy(state.model, sequences, recipe.target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), recipe.clip)
    set_rates(state.optimisers, recipe.rate(state.step))
    for optimiser in state.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    excess = loss.item() * BITS_PER_NAT - float(sequences.columns["bayes_entropy_bits"].mean())
    advance(state, excess, len(stream.stages), recipe, time.process_time() - began)


def cross_entropy(
    model: torch.nn.Module, sequences: Sequences, target: Literal["labels", "distil"]
) -> Float[torch.Tensor, ""]:
    """Mean cross-entropy in nats over sequences and scored positions, over the whole vocabulary.

    The sequences are copied to the device of the network.
    """
    device = next(model.parameters()).device

    def copied(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    logits = logits_at(model, copied(sequences.tokens), copied(sequences.scored))  # [sequence, scored, vocab]
    if target == "labels":
        return F.cross_entropy(logits.flatten(0, 1), copied(sequences.targets).flatten())
    log_q = F.log_softmax(logits, dim=-1)[..., copied(sequences.slice_ids)]  # [sequence, scored, outcome]
    return -(copied(sequences.posterior).float() * log_q).sum(dim=-1).mean()


def _save(state: TrainingState, plan: dict[str, Any], folder: Path) -> None:
    stored = {
        "plan": plan,
        "model": state.model.state_dict(),
        "optimisers": [o.state_dict() for o in state.optimisers],
        "rng": state.rng.bit_generator.state,
        **{name: getattr(state, name) for name in COUNTERS},
    }
    with _told(folder), writing(folder / STATE_NAME) as draft:
        torch.save(stored, draft)
    _remember(state, plan, folder)


def _remember(state: TrainingState, plan: dict[str, Any], folder: Path) -> None:
    remember(f"step {state.step} of {plan['recipe']['n_steps']} of the training is kept in {folder}")


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


def _resume(state: TrainingState, plan: dict[str, Any], folder: Path) -> None:
    path = folder / STATE_NAME
    if not path.exists():
        return
    stored = torch.load(path, weights_only=True, map_location="cpu")
    if stored["plan"] != plan:
        raise ModelError(
            asked=f"training in {folder}",
            found="an unfinished training of another task, network or recipe lies there",
            fix=f"Choose another folder, or remove {path} to start anew.",
        )
    state.model.load_state_dict(stored["model"])
    for optimiser, its_state in zip(state.optimisers, stored["optimisers"], strict=True):
        optimiser.load_state_dict(its_state)
    state.rng.bit_generator.state = stored["rng"]
    for name in COUNTERS:
        setattr(state, name, stored[name])
    _remember(state, plan, folder)
