"""Training: one loop for every task and network.

Cross-entropy on sampled labels at the scored positions, fresh sequences in every batch. What the loop knows
of the posterior is only its mean entropy, against which success is judged: the loss minus that is an
unbiased estimate of KL(posterior || network). `distil` puts the posterior itself in place of the labels and
is never mixed with them.

Everything a run depends on is in the task, the network and the recipe; a run stopped at any step and
resumed gives the same weights bit for bit.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional as F
from transformers import PreTrainedModel

from interp.errors import ModelError, UnknownName, UsageError
from interp.information import BITS_PER_NAT
from interp.tunnel import Sequences, Task
from wind_tunnels.networks import Network, build, logits_at
from wind_tunnels.optimisers import make_optimisers

STATE_NAME = "training.pt"
N_SMOOTHED = 10
_COUNTERS = ("step", "stage", "steps_in_stage", "excess_bits", "core_seconds")


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    `target` is `labels` (one sampled answer a position) or `distil` (the exact posterior as soft labels).
    Batches hold `batch` sequences in orbits of up to `n_copies` relabellings. The curriculum `success`
    moves a task to its next stage when the smoothed excess loss falls below `gate_bits`; `none` trains on
    the task itself at once. Rates rise over `n_warmup` steps and fall linearly to zero; the gradient is
    clipped to norm `clip`. `checkpoints_per_doubling` keeps the weights at log-spaced steps, none at 0.
    """

    n_steps: int = 1200
    batch: int = 100
    n_copies: int = 10
    target: Literal["labels", "distil"] = "labels"
    curriculum: Literal["success", "none"] = "success"
    gate_bits: float = 0.1
    lr_muon: float = 0.01
    lr_adamw: float = 0.005
    n_warmup: int = 20
    clip: float = 1.0
    checkpoints_per_doubling: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"n_steps": 1, "batch": 1, "n_copies": 1, "n_warmup": 1, "checkpoints_per_doubling": 0, "seed": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < bound:
                raise self._refusal(f"{name} = {value!r}", f"It is a whole number, {bound} or more.")
        for name in ("gate_bits", "lr_muon", "lr_adamw", "clip"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise self._refusal(f"{name} = {value!r}", "It is a number above 0.")
        for name in ("target", "curriculum"):
            known = get_args(get_type_hints(Recipe)[name])
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), known)

    def _refusal(self, found: str, fix: str) -> UsageError:
        return UsageError(asked="a training recipe", found=found, fix=fix)

    def rate(self, step: int) -> float:
        """The factor on both learning rates at this step, between 0 and 1."""
        return min((step + 1) / self.n_warmup, 1.0) * (1.0 - step / self.n_steps)

    def checkpoint_steps(self) -> tuple[int, ...]:
        """The steps after which weights are kept: 0, 1, 2, 4, 8 ... with one checkpoint per doubling."""
        if not self.checkpoints_per_doubling:
            return ()
        n_powers = math.ceil(math.log2(self.n_steps) * self.checkpoints_per_doubling)
        powers = {round(2.0 ** (i / self.checkpoints_per_doubling)) for i in range(n_powers)}
        return tuple(sorted({0, *powers, self.n_steps}))


@dataclass
class Progress:
    """Where a training is: everything that changes from step to step, and nothing else."""

    model: PreTrainedModel
    optimisers: tuple[torch.optim.Optimizer, ...]
    rng: np.random.Generator
    step: int = 0
    stage: int = 0
    steps_in_stage: int = 0
    excess_bits: float = math.nan
    core_seconds: float = 0.0


def train(
    task: Task,
    network: Network,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    on_step: Callable[[Progress], None] | None = None,
    save_every: int = 100,
) -> Progress:
    """Train to the end of the recipe, from where `folder` left off if it holds an unfinished run of this plan.

    With a folder, the state is kept there every `save_every` steps and the log-spaced checkpoints in `steps/<step>/`.
    `on_step` hears of every step; raising from it stops the run at a point it can resume from.
    """
    plan = describe(task, network, recipe)
    progress = start(task, network, recipe)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _resume(progress, plan, folder)
    stages = task.curriculum() if recipe.curriculum == "success" else (task,)
    kept = set(recipe.checkpoint_steps()) if folder is not None else set()
    progress.model.train()
    while True:
        if folder is not None and progress.step in kept:
            progress.model.save_pretrained(folder / "steps" / str(progress.step))
        if folder is not None and (progress.step % save_every == 0 or progress.step == recipe.n_steps):
            _save(progress, plan, folder)
        if progress.step == recipe.n_steps:
            break
        update(progress, stages, recipe)
        if on_step is not None:
            on_step(progress)
    progress.model.eval()
    return progress


def describe(task: Task, network: Network, recipe: Recipe) -> dict[str, Any]:
    """Everything a training depends on, as plain data."""
    return {
        "task": task.name,
        "parameters": task.describe(),
        "network": dataclasses.asdict(network),
        "recipe": dataclasses.asdict(recipe),
    }


def start(task: Task, network: Network, recipe: Recipe) -> Progress:
    """Step 0: weights and data from two streams of the recipe's seed."""
    weights, data = np.random.SeedSequence(recipe.seed).spawn(2)
    model = build(network, task, torch.Generator().manual_seed(int(weights.generate_state(1)[0])))
    optimisers = make_optimisers(model, lr_muon=recipe.lr_muon, lr_adamw=recipe.lr_adamw)
    return Progress(model, optimisers, np.random.default_rng(data))


def update(progress: Progress, stages: tuple[Task, ...], recipe: Recipe) -> None:
    """One batch, one step of both optimisers, and a move to the next stage where this one is mastered."""
    began = time.process_time()
    sequences = stages[progress.stage].sample_orbits(progress.rng, recipe.batch, recipe.n_copies)
    loss = cross_entropy(progress.model, sequences, recipe.target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(progress.model.parameters(), recipe.clip)
    for optimiser in progress.optimisers:
        for group in optimiser.param_groups:
            group["lr"] = group.setdefault("peak", group["lr"]) * recipe.rate(progress.step)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    excess = loss.item() * BITS_PER_NAT - float(sequences.columns["bayes_entropy_bits"].mean())
    _judge(progress, excess, len(stages), recipe.gate_bits)
    progress.step += 1
    progress.core_seconds += time.process_time() - began


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
    path = folder / STATE_NAME
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)  # a crash while writing leaves the last good state


def _resume(progress: Progress, plan: dict[str, Any], folder: Path) -> None:
    path = folder / STATE_NAME
    if not path.exists():
        return
    state = torch.load(path, weights_only=True)
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
