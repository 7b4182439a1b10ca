"""Training: one loop for every task and network, on sampled labels or (`distil`) on the posterior itself.

The loss minus the mean entropy of the posterior is an unbiased estimate of KL(posterior || network). A run stopped at
any step and resumed gives the same weights bit for bit.
"""

import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch.nn import functional as F
from transformers import PreTrainedModel

from interp.errors import ModelError, UsageError
from interp.information import BITS_PER_NAT
from interp.system.foreign_files import readable
from interp.system.signals import Stopped, remember, whole
from interp.system.whole_files import make_folder, writing
from interp.tunnel import Sequences

from ..networks.networks import build, switch_off_attention
from ..networks.weights import load_weights, save_weights
from .optimisers import make_optimisers, set_rates
from .plan import Recipe, TrainingPlan
from .sampling import BatchSampler, seed_of_weights, training_generator

STATE_NAME = "training.pt"
SECONDS_BETWEEN_SAVES = 30.0
N_SMOOTHED = 10
N_CURVE_POINTS = 200
COUNTERS = ("step", "stage", "steps_in_stage", "excess_bits", "core_seconds", "stage_ends", "curve")
CurvePoint = tuple[int, int, float, float]
"""Steps done, stage, smoothed excess loss in bits, core-seconds."""


@dataclass
class TrainingState:
    """Everything in a training that changes; `stage_ends` are the steps after which the curriculum moved on."""

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
"""Called after every step of a training."""


def train(
    plan: TrainingPlan, *, folder: Path | None = None, on_step: OnStep | None = None, save_every: int = 100
) -> TrainingState:
    """Train to the end of the recipe, from where `folder` left off if it holds an unfinished run of this plan.

    The folder receives the state every `save_every` steps (or half a minute), and in `steps/<step>/` the weights that
    the plan keeps. An exception from `on_step` stops the run where it can resume.
    """
    recipe, state = plan.recipe, initial_state(plan)
    if folder is not None:
        make_folder(folder)
        _resume(state, plan, folder)
    sampler = BatchSampler(plan.task, recipe)
    state.model.train()
    saved = time.monotonic()
    try:
        while True:
            if folder is not None and state.step in plan.keep:
                _keep_weights(state, folder / "steps" / str(state.step), folder)
            is_due = state.step % save_every == 0 or time.monotonic() - saved > SECONDS_BETWEEN_SAVES
            if folder is not None and (is_due or state.step == recipe.n_steps):
                _save(state, plan, folder)
                saved = time.monotonic()
            if state.step == recipe.n_steps:
                break
            with whole():
                update(state, sampler, recipe)
            if on_step is not None:
                on_step(state)
    except Stopped:
        if folder is not None:
            _save(state, plan, folder)
        raise
    state.model.eval()
    return state


def initial_state(plan: TrainingPlan) -> TrainingState:
    """The state at step 0, with fresh weights or those of a checkpoint."""
    recipe = plan.recipe
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(asked="training on cuda", found="torch finds no GPU here", fix="Use cpu, or another machine.")
    if plan.init is None:
        model = build(plan.network, plan.task, torch.Generator().manual_seed(seed_of_weights(recipe)))
    else:
        model = load_weights(plan.init.folder)
        switch_off_attention(model, plan.network)
    model.to(recipe.device)  # pyrefly: ignore[bad-argument-type]
    optimisers = make_optimisers(model, recipe)
    return TrainingState(model, optimisers, training_generator(recipe))


def update(state: TrainingState, sampler: BatchSampler, recipe: Recipe) -> None:
    """Train on one batch, and move to the next stage if this one is mastered."""
    began = time.process_time()
    sequences = sampler.batch(state.rng, state.stage)
    loss, uneven = losses(state.model, sequences, recipe.target, balanced=recipe.balance > 0)
    (loss + recipe.balance * uneven).backward()
    torch.nn.utils.clip_grad_norm_(state.model.parameters(), recipe.clip)
    set_rates(state.optimisers, recipe.rate(state.step))
    for optimiser in state.optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    excess = loss.item() * BITS_PER_NAT - float(sequences.columns["bayes_entropy_bits"].mean())
    advance(state, excess, len(sampler.stages), recipe, time.process_time() - began)


def advance(state: TrainingState, excess_bits: float, n_stages: int, recipe: Recipe, core_seconds: float) -> None:
    """Record a step, and move to the next stage if the excess, smoothed over ten batches of a stage, is low."""
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


def losses(
    model: torch.nn.Module, sequences: Sequences, target: Literal["labels", "distil"], *, balanced: bool = False
) -> tuple[Float[torch.Tensor, ""], Float[torch.Tensor, ""]]:
    """Mean cross-entropy in nats at the scored positions, and the load-balancing loss if `balanced`, else 0."""
    device = next(model.parameters()).device

    def copied(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    more = {"output_router_logits": True} if balanced else {}
    out = model(input_ids=copied(sequences.tokens), logits_to_keep=copied(sequences.scored), use_cache=False, **more)
    uneven = out.aux_loss if balanced else torch.zeros((), device=device)
    if target == "labels":
        return F.cross_entropy(out.logits.flatten(0, 1), copied(sequences.targets).flatten()), uneven
    log_q = F.log_softmax(out.logits, dim=-1)[..., copied(sequences.slice_ids)]  # [sequence, scored, outcome]
    return -(copied(sequences.posterior).float() * log_q).sum(dim=-1).mean(), uneven


def _save(state: TrainingState, plan: TrainingPlan, folder: Path) -> None:
    stored = {
        "plan": plan.describe(),
        "model": state.model.state_dict(),
        "optimisers": [o.state_dict() for o in state.optimisers],
        "rng": state.rng.bit_generator.state,
        **{name: getattr(state, name) for name in COUNTERS},
    }
    content = io.BytesIO()  # on a full disk torch's own writer says "unexpected pos 64 vs 0"
    torch.save(stored, content)
    with keeping_in(folder), writing(folder / STATE_NAME) as draft:
        draft.write_bytes(content.getbuffer())
    _remember(state, plan, folder)


def _keep_weights(state: TrainingState, step: Path, folder: Path) -> None:
    if not step.exists():
        with keeping_in(folder), writing(step) as draft:
            save_weights(state.model, draft, torch.float16)


def _remember(state: TrainingState, plan: TrainingPlan, folder: Path) -> None:
    remember(f"step {state.step} of {plan.recipe.n_steps} of the training is kept in {folder}")


@contextmanager
def keeping_in(folder: Path) -> Iterator[None]:
    """Raise `ModelError` where the libraries cannot write."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            asked=f"keeping the training in {folder}",
            found=f"it cannot be written ({str(error).splitlines()[0]})",
            fix="Free some space, or make it writable; the same command resumes from the state that was kept last.",
        ) from error


def _resume(state: TrainingState, plan: TrainingPlan, folder: Path) -> None:
    path = folder / STATE_NAME
    if not path.exists():
        return
    asked, fix = f"training in {folder}", f"Choose another folder, or remove {path} to start over."
    with readable(asked, fix, found=f"the state in {path.name} cannot be read", error=ModelError):
        stored = torch.load(path, weights_only=True, map_location="cpu")
        if stored["plan"] != plan.describe():
            found = "an unfinished training of another task, network or recipe lies there"
            raise ModelError(asked=asked, found=found, fix=fix)
        state.model.load_state_dict(stored["model"])
        for optimiser, its_state in zip(state.optimisers, stored["optimisers"], strict=True):
            optimiser.load_state_dict(its_state)
        state.rng.bit_generator.state = stored["rng"]
        for name in COUNTERS:
            setattr(state, name, stored[name])
    _remember(state, plan, folder)
