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
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

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
from .progress import COUNTERS, Progress, advance
from .recipe import Recipe
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
    model.to(recipe.device)  # pyrefly: ignore[bad-argument-type]
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


def _updater(progress: Progress, recipe: Recipe) -> Callable[[Progress, Stream, Recipe], None]:
    if recipe.device == "cpu":
        return update
    from .cuda_graph import DeviceUpdate

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


def _save(progress: Progress, plan: dict[str, Any], folder: Path) -> None:
    state = {
        "plan": plan,
        "model": progress.model.state_dict(),
        "optimisers": [o.state_dict() for o in progress.optimisers],
        "rng": progress.rng.bit_generator.state,
        **{name: getattr(progress, name) for name in COUNTERS},
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
    for name in COUNTERS:
        setattr(progress, name, state[name])
    _remember(progress, plan, folder)
