"""The plan of one training: everything that it depends on, its numbers among them, and what it is to leave behind."""

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

    `target` is `labels` (one sampled answer a position) or `distil` (the exact posterior as soft labels).
    Batches hold `batch` sequences in orbits of up to `n_copies` relabellings. The curriculum `success`
    moves a task to its next stage when the smoothed excess loss falls below `gate_bits`; `none` trains on
    the task itself at once. Rates rise over `n_warmup` steps and fall linearly to zero; the gradient is
    clipped to norm `clip`.

    `optimiser` is `muon` (hidden matrices by Muon at `lr_muon`, the rest by AdamW at `lr_adamw`) or `adamw` (all by
    AdamW). `n_distinct` trains on that many fixed sequences, drawn once with their answers, in place of fresh ones:
    what can then be learnt is those by heart.
    `balance` is the weight of the load-balancing loss of a mixture of experts (Fedus and others, 2021), of which the
    learning curve shows nothing: it counts the cross-entropy alone.
    With a loss `horizon` only the first so many scored positions of a sequence are trained; what a network does beyond
    them it was never taught. `later_share` is the share of later positions that is trained all the same, drawn afresh
    for every batch.
    `stored` says how the finished weights are kept: `float16` rounds them first, and measures what is left.
    Weights are float32 on either `device`: `cpu`, which repeats bit for bit, or `cuda`, to which batches are copied.
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
        """The factor on both learning rates at this step, between 0 and 1."""
        return min((step + 1) / self.n_warmup, 1.0) * (1.0 - step / self.n_steps)


@dataclass(frozen=True)
class TrainingPlan(Checked):
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
