"""One training from its settings to an evaluated folder; it is resumed, or read if finished, by all it depends on."""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from interp.errors import UsageError, named
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.sources import kept_steps
from interp.records.tunnel_card import CARD_NAME, TunnelCard, read_card
from interp.records.unfinished import PARTIAL, refuse_unwritable
from interp.system.child_processes import in_processes
from interp.system.locks import one_at_a_time
from interp.system.progress import Report
from interp.system.signals import remember
from interp.system.threads import one_thread
from interp.system.whole_files import LONGEST_NAME, bring_to_disk, move, remove_empty, shortened, telling
from interp.tunnel import Task, make_task

from ..evaluation.checkpoint import N_EVAL, check_limits, read_curve, save
from ..networks.architectures import Network
from ..networks.weights import TunnelCheckpoint, open_tunnel
from ..training.loop import STATE_NAME, OnStep, keeping_in, train
from ..training.plan import Recipe, TrainingPlan
from ..training.sampling import refuse_too_many, stages_of

Found = TypeVar("Found")
Keep = Collection[int] | Literal["log"]
"""Steps whose weights are kept; `log` is 0, 1, 2, 4, 8 ... before the end."""

_EARLIER = ("fresh_share", "checkpoints_per_doubling")
"""Settings of recipes in older cards."""


@dataclass(frozen=True)
class FinishedTraining:
    """A finished training, whose curriculum ended in stage `stage` of `n_stages`, from 1."""

    folder: Path
    card: TunnelCard
    stage: int
    n_stages: int


def make_plan(
    kind: type[Task],
    settings: Mapping[str, Any],
    *,
    init: str | Path | None = None,
    variant: str = "",
    limits: Mapping[str, float] | None = None,
    keep: Keep = (),
) -> TrainingPlan:
    """The plan with these settings, each of task, network or recipe; with `init` the checkpoint fixes the network."""
    owners = {f.name: owner for owner in (kind, Network, Recipe) for f in dataclasses.fields(owner)}
    mine = {owner: {} for owner in (kind, Network, Recipe)}
    for name, value in settings.items():
        mine[named(f"field of {kind.name}, network or recipe", name, owners)][name] = value
    task, recipe = kind(**mine[kind]), Recipe(**mine[Recipe])
    refuse_too_many(task, max(N_EVAL, recipe.batch, recipe.n_distinct or 0))
    check_limits(task, limits or {}, recipe.horizon)
    doubled = (2**i for i in range((recipe.n_steps - 1).bit_length()))
    steps = (0, *doubled) if isinstance(keep, str) else keep
    if init is None:
        return TrainingPlan(task, Network(**mine[Network]), recipe, None, variant, limits or {}, steps)
    if mine[Network]:
        raise UsageError(
            asked=f"a network with {', '.join(sorted(mine[Network]))}, started from {init}",
            found="the checkpoint fixes the network",
            fix="Leave the settings of the network out.",
        )
    origin = open_tunnel(init)
    origin.refuse_larger(task)
    return TrainingPlan(task, origin.network, recipe, origin, variant, limits or {}, steps)


def train_and_evaluate(plan: TrainingPlan, folder: Path, on_step: OnStep | None = None) -> TunnelCard:
    """Train in a folder, or resume there, evaluate, and write checkpoint and card; the caller removes the state."""
    # more threads gain nothing at these sizes, and sums depend on their number
    with quiet_libraries(), one_thread():
        card = save(train(plan, folder=folder, on_step=on_step), plan, folder)
    with keeping_in(folder):
        bring_to_disk(folder)
    return card


def train_tunnel(plan: TrainingPlan, out: Path, on_step: OnStep | None = None) -> FinishedTraining:
    """The training of a plan in `<out>/<name>`: done, resumed or read; `UsageError` if the folder cannot be its."""
    if len(os.fsencode(plan.name)) > LONGEST_NAME:
        raise UsageError(
            asked=f"training into {shortened(plan.name)}...",
            found=f"names of folders have at most {LONGEST_NAME} bytes",
            fix="Choose a shorter --variant.",
        )
    refuse_unwritable(out)
    target = out / plan.name
    with telling(f"training into {target}", "Mend that; the same command resumes from what was kept."):
        if target.exists():
            card = _finished_card(plan, target)
        else:
            with one_at_a_time(out / f".interp-{plan.digest}.lock", f"training {plan.name} in {out}"):
                card = _finished_card(plan, target) if target.exists() else _train_into(plan, target, out, on_step)
    return FinishedTraining(target, card, read_curve(target)[-1][1] + 1, len(stages_of(plan.task, plan.recipe)))


def _train_into(plan: TrainingPlan, target: Path, out: Path, on_step: OnStep | None) -> TunnelCard:
    work = out / PARTIAL / plan.digest
    is_done = (work / CARD_NAME).is_file() and not (work / STATE_NAME).exists()  # stopped in its very last moment
    card = read_card(work) if is_done else train_and_evaluate(plan, work, on_step)
    (work / STATE_NAME).unlink(missing_ok=True)
    move(work, target)
    remember("")
    remove_empty(work.parent)
    return card


def train_tunnels(plans: Iterable[TrainingPlan], out: Path, progress: Report) -> list[FinishedTraining]:
    """The trainings of several plans, side by side in processes of one core each; on a GPU one at a time."""
    plans = tuple(plans)
    ahead = [plan for plan in plans if not (out / plan.name).exists()]
    for n, _ in enumerate(side_by_side(partial(train_tunnel, out=out), ahead, out), 1):
        progress(len(plans) - len(ahead) + n, len(plans))
    return [train_tunnel(plan, out) for plan in plans]


def side_by_side(
    train: Callable[[TrainingPlan], Found], plans: Sequence[TrainingPlan], out: Path
) -> Iterator[tuple[int, Found]]:
    """Yield the index of each plan and the result of `train`, in order of completion; on a GPU one at a time."""
    at_once = None if all(plan.recipe.device == "cpu" for plan in plans) else 1
    if plans:
        remember(f"all but the last half minute of the trainings is kept in {out / PARTIAL}")
    yield from in_processes(train, plans, f"training {len(plans)} networks into {out}", at_once)
    remember("")


def plan_from_card(
    card: TunnelCard, kind: type[Task], init: TunnelCheckpoint | None, keep: Collection[int] = ()
) -> TrainingPlan:
    """The training that a card describes; fields newer than the card have their defaults."""
    limits = {name: figure.limit for name, figure in card.figures.items() if figure.limit is not None}
    settings = {name: value for name, value in card.recipe.items() if name not in _EARLIER}
    network, recipe = Network(arch=card.arch, **card.network), Recipe(seed=card.seed, **settings)
    return TrainingPlan(make_task(kind, card.parameters), network, recipe, init, card.variant, limits, keep)


def _finished_card(plan: TrainingPlan, target: Path) -> TunnelCard:
    if (target / CARD_NAME).is_file():
        card = read_card(target)
        has_limits = plan.limits.items() <= {name: figure.limit for name, figure in card.figures.items()}.items()
        if _is_of(card, plan) and has_limits and set(plan.keep) <= set(kept_steps(target)):
            return card
    raise UsageError(
        asked=f"training into {target}",
        found="there is something else already, or a training with other settings, limits or steps kept",
        fix="Choose another --out or --variant, or move it away.",
    )


def _is_of(card: TunnelCard, plan: TrainingPlan) -> bool:
    init = None if plan.init is None else plan.init.record()
    if card.task != plan.task.name or card.init != init or card.recipe.get("fresh_share"):
        return False
    return plan_from_card(card, type(plan.task), plan.init, plan.keep).digest == plan.digest
