"""Plans: everything one training is, from the words of a command to the folder it ends in.

A plan that was begun is gone on with, and one that is finished is not done again: both are recognised by what the
training depends on, never by a name alone.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from interp.errors import UnknownName, UsageError
from interp.loading.sources import kept_steps
from interp.records.tunnel_card import CARD_NAME, TunnelCard, read_card, tunnel_name
from interp.records.unfinished import PARTIAL, refuse_unwritable
from interp.system.digest import digest_of
from interp.system.signals import remember
from interp.tunnel import Task, make_task

from ..evaluation.checkpoint import check_limits, read_curve, save
from ..networks.architectures import Network
from ..networks.weights import Init, init_from, open_tunnel
from ..training.loop import STATE_NAME, describe, train
from ..training.progress import Progress
from ..training.recipe import Recipe
from ..training.stream import stages_of

Keep = Collection[int] | Literal["log"]
"""Steps whose weights are kept; `log` are 0, 1, 2, 4, 8 ... up to the end, which the training leaves anyway."""


@dataclass(frozen=True)
class Plan:
    """One training. `limits` and `keep` (steps whose weights stay) are about what is left behind, not about it."""

    task: Task
    network: Network
    recipe: Recipe
    init: Init | None = None
    variant: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    keep: Collection[int] = ()

    def __post_init__(self) -> None:
        check_limits(self.task, self.limits)
        beyond = sorted(step for step in self.keep if not 0 <= step <= self.recipe.n_steps)
        if beyond:
            raise UsageError(
                asked=f"keeping the weights of step {beyond[0]}",
                found=f"the training has the steps 0 to {self.recipe.n_steps}",
                fix="Name steps of the training.",
            )
        assert self.name  # a variant that is no name is refused here, before anything is trained

    @property
    def name(self) -> str:
        """`<task>-<arch>[-<variant>]`: of the folder and of the tunnel."""
        return tunnel_name(self.task.name, self.network.arch, self.variant)

    def describe(self) -> dict[str, Any]:
        """What the training depends on, as plain data."""
        return describe(self.task, self.network, self.recipe, self.init)

    @property
    def digest(self) -> str:
        """Of what the training depends on and keeps: the name of its folder while it is unfinished."""
        return digest_of([self.describe(), sorted(self.keep)])


@dataclass(frozen=True)
class Done:
    """A finished training. In its last step its curriculum was in stage `stage` of `n_stages`, counted from 1."""

    folder: Path
    card: TunnelCard
    stage: int
    n_stages: int


def configure(
    kind: type[Task],
    settings: Mapping[str, Any],
    *,
    init: str | Path | None = None,
    variant: str = "",
    limits: Mapping[str, float] | None = None,
    keep: Keep = (),
) -> Plan:
    """The plan that these settings describe; each belongs to exactly one of task, network and recipe.

    With `init` the network is that of the checkpoint, and settings of a network are refused.
    """
    owners = {f.name: owner for owner in (kind, Network, Recipe) for f in dataclasses.fields(owner)}
    for name in settings:
        if name not in owners:
            raise UnknownName(f"field of {kind.name}, network or recipe", name, owners)
    mine = {owner: {n: v for n, v in settings.items() if owners[n] is owner} for owner in (kind, Network, Recipe)}
    task, recipe = kind(**mine[kind]), Recipe(**mine[Recipe])
    steps = _log_spaced(recipe) if isinstance(keep, str) else keep
    if init is None:
        return Plan(task, Network(**mine[Network]), recipe, None, variant, limits or {}, steps)
    if mine[Network]:
        raise UsageError(
            asked=f"a network with {', '.join(sorted(mine[Network]))}, started from {init}",
            found="the network is that of the checkpoint",
            fix="Leave the settings of the network out.",
        )
    opened = open_tunnel(init)
    return Plan(task, opened.network, recipe, init_from(opened, task), variant, limits or {}, steps)


def _log_spaced(recipe: Recipe) -> tuple[int, ...]:
    return dataclasses.replace(recipe, checkpoints_per_doubling=1).checkpoint_steps()[:-1]


def carry_out(plan: Plan, out: Path, on_step: Callable[[Progress], None] | None = None) -> Done:
    """Train, measure and save as `<out>/<name>`, or go on with what was begun; a finished training is only read.

    `UsageError` where that folder holds something else.
    """
    refuse_unwritable(out)
    target = out / plan.name
    work = out / PARTIAL / plan.digest
    card = _finished(plan, target) if target.exists() else _train(plan, target, work, on_step)
    return Done(target, card, read_curve(target)[-1][1] + 1, len(stages_of(plan.task, plan.recipe)))


def _train(plan: Plan, target: Path, work: Path, on_step: Callable[[Progress], None] | None) -> TunnelCard:
    progress = train(plan.task, plan.network, plan.recipe, init=plan.init, folder=work, on_step=on_step, keep=plan.keep)
    card = save(
        progress, plan.task, plan.network, plan.recipe,
        folder=work, limits=plan.limits, variant=plan.variant, init=plan.init,
    )  # fmt: skip
    work.rename(target)
    (target / STATE_NAME).unlink()
    remember("")
    if not any(work.parent.iterdir()):
        work.parent.rmdir()
    return card


def _finished(plan: Plan, target: Path) -> TunnelCard:
    """The card of a training of just this plan that was finished before."""
    if (target / CARD_NAME).is_file():
        card = read_card(target)
        is_same = card.task == plan.task.name and _plan_of(card, type(plan.task)) == plan.describe()
        if is_same and set(plan.keep) <= set(kept_steps(target)):
            (target / STATE_NAME).unlink(missing_ok=True)  # of one that was stopped in its very last moment
            return card
    raise UsageError(
        asked=f"training into {target}",
        found="there is something else already",
        fix="Choose another --out or --variant, or move it away.",
    )


def _plan_of(card: TunnelCard, kind: type[Task]) -> dict[str, Any]:
    """What the training of a card depended on; fields that came later have the values they had then."""
    network, recipe = Network(arch=card.arch, **card.network), Recipe(seed=card.seed, **card.recipe)
    plan = describe(make_task(kind, card.parameters), network, recipe)
    return {**plan, "init": None if card.init is None else dict(card.init)}
