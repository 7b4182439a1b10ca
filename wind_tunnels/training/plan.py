"""The plan of one training: everything that it depends on, and what it is to leave behind."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from interp.errors import UsageError
from interp.records.tunnel_card import tunnel_name
from interp.system.digest import digest_of
from interp.tunnel import Task

from ..networks.architectures import Network
from ..networks.weights import TunnelCheckpoint
from .recipe import Recipe


@dataclass(frozen=True)
class TrainingPlan:
    """One training; it starts from fresh weights, or from those of a checkpoint, `init`.

    What it leaves behind has no influence on it: the weights of the steps in `keep`, a card with `limits` (upper bounds
    by the name of a figure), in a folder whose name may end in a `variant`.
    """

    task: Task
    network: Network
    recipe: Recipe
    init: TunnelCheckpoint | None = None
    variant: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    keep: Collection[int] = ()

    def __post_init__(self) -> None:
        beyond = sorted(step for step in self.keep if not 0 <= step <= self.recipe.n_steps)
        if beyond:
            raise UsageError(
                asked=f"keeping the weights of step {beyond[0]}",
                found=f"the training has the steps 0 to {self.recipe.n_steps}",
                fix="Name steps of the training.",
            )
        if self.recipe.balance and self.network.n_experts is None:
            raise UsageError(
                asked=f"balance = {self.recipe.balance} in training a {self.network.arch}",
                found="it has no experts to keep in balance",
                fix="Use mixtral, or leave balance out.",
            )
        assert self.name  # a variant that is no name is refused here, before anything is trained

    @property
    def name(self) -> str:
        """`<task>-<arch>[-<variant>]`: of the folder and of the tunnel."""
        return tunnel_name(self.task.name, self.network.arch, self.variant)

    def describe(self) -> dict[str, Any]:
        """Everything the training depends on, as plain data that JSON gives back unchanged."""
        described = {
            "task": self.task.name,
            "parameters": self.task.describe(),
            "network": asdict(self.network),
            "recipe": asdict(self.recipe),
            "init": None if self.init is None else self.init.record(),
        }
        return json.loads(json.dumps(described))

    @property
    def digest(self) -> str:
        """Of what the training depends on and keeps: the name of its folder while it is unfinished."""
        return digest_of([self.describe(), sorted(self.keep)])
