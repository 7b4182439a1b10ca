"""The plan of one training: everything that it depends on, and what it keeps."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from interp.records.tunnel_card import tunnel_name
from interp.system.digest import digest_of
from interp.tunnel import Task

from ..networks.architectures import Network
from ..networks.weights import TunnelCheckpoint
from ..validation import FRACTION, POSITIVE, Checked, Conflict


@dataclass(frozen=True)
class Recipe(Checked):
    """How a network is trained.

    `target` is `labels` (one sampled answer per position) or `distil` (the exact posterior as soft labels). Batches
    hold `batch` sequences in orbits of up to `n_copies` relabellings. The curriculum `success` moves a task to its next
    stage when the smoothed excess loss falls below `gate_bits`; `none` trains on the task itself at once. Rates rise
    over `n_warmup` steps and fall linearly to zero; the gradient is clipped to norm `clip`. `optimiser` is `muon`
    (hidden matrices at `lr_muon`, the rest by AdamW at `lr_adamw`) or `adamw`.

    `n_distinct` trains on so many fixed sequences, which can only be memorised, in place of fresh ones. `balance` is
    the weight of the load-balancing loss of a mixture of experts (Fedus and others, 2021). With a loss `horizon` only
    the first so many scored positions are trained, and a random `later_share` of later ones in each batch. `stored` is
    the precision of the saved weights, in which they are evaluated. Trainings on the `device` `cpu` repeat bit for bit.
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
    seed: int = 0
    optimiser: Literal["muon", "adamw"] = "muon"
    n_distinct: int | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    balance: float = 0.0
    horizon: int | None = None
    later_share: float = 0.0
    stored: Literal["float32", "float16"] = "float32"

    asked = "a training recipe"
    rules: ClassVar = {
        "n_steps": 1, "batch": 1, "n_copies": 1, "n_warmup": 1, "seed": 0,
        "n_distinct": 1, "horizon": 1, "gate_bits": POSITIVE, "lr_muon": POSITIVE, "lr_adamw": POSITIVE,
        "clip": POSITIVE, "balance": FRACTION, "later_share": FRACTION,
    }  # fmt: skip

    def conflicts(self) -> Iterator[Conflict]:
        found = "later_share without a horizon: all positions are trained then"
        yield bool(self.later_share) and self.horizon is None, found, "Say how many positions come before it: horizon."

    def rate(self, step: int) -> float:
        """The factor on the learning rates at this step."""
        return min((step + 1) / self.n_warmup, 1.0) * (1.0 - step / self.n_steps)


@dataclass(frozen=True)
class TrainingPlan(Checked):
    """One training, from fresh weights or from those of a checkpoint, `init`.

    `keep` (steps whose weights are kept), `limits` (upper bounds of figures) and `variant` (suffix of the folder) do
    not influence it.
    """

    task: Task
    network: Network
    recipe: Recipe
    init: TunnelCheckpoint | None = None
    variant: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    keep: Collection[int] = ()

    asked = "a training"

    def conflicts(self) -> Iterator[Conflict]:
        n_steps, arch = self.recipe.n_steps, self.network.arch
        for step in sorted(step for step in self.keep if not 0 <= step <= n_steps):
            yield True, f"step {step} is to be kept, and the training has the steps 0 to {n_steps}", "Name one of them."
        found = f"balance = {self.recipe.balance}, and {arch} has no experts to keep in balance"
        fix = "Use mixtral, or leave balance out."
        yield bool(self.recipe.balance) and self.network.n_experts is None, found, fix

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.name  # raises for an invalid variant

    @property
    def name(self) -> str:
        """`<task>-<arch>[-<variant>]`, the name of the folder and of the tunnel."""
        return tunnel_name(self.task.name, self.network.arch, self.variant)

    def describe(self) -> dict[str, Any]:
        """Everything the training depends on, as JSON data."""
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
        """Digest of what the training depends on and keeps; names its folder while unfinished."""
        return digest_of([self.describe(), sorted(self.keep)])
