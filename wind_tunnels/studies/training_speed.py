"""The study `training_speed`: what it costs to come close to the posterior, by two recipes on one network and data.

Ours (Muon and AdamW, rates that fall to zero) and the papers' (AdamW at a constant rate). All trainings go on in turn,
a few steps each, so that whatever else the machine does meets them alike; time is CPU time of the steps. A training
ends when its KL on held-out sequences is low enough, or its steps or its time are spent: then it takes longer.

Source: Paper I (arXiv 2512.22471): AdamW (0.9, 0.999), weight decay 0.01, constant rate 0.001, clipped at 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from interp.findings import Findings, Scalar
from interp.study import Study
from interp.system.progress import Report
from interp.table import LABEL, Table
from interp.tunnel import Sequences, Task

from ..networks.architectures import Network
from ..training.recipe import Recipe
from ..validation import check_distinct, check_positive

if TYPE_CHECKING:
    import torch

    from ..training.sampling import BatchSampler
    from ..training.state import TrainingState

OURS, PAPERS = "ours", "papers"
STEPS_A_TURN = 25
N_HELD_OUT = 1000
_WORTH_A_LOOK = 4.0
"""Held-out sequences are read once the smoothed loss of the training is within this many times what is asked."""


@dataclass(frozen=True)
class TrainingSpeed(Study):
    """Trainings of `networks` on bijection of `V` symbols in `L` pairs, the papers' without replacement, to `kl_bits`.

    `n_steps` are those over which the rates of our recipe fall to zero, and its training ends; the papers' recipe,
    which has no end, is given up after `budget_seconds` of CPU time. One training of each from each of `seeds`.
    """

    networks: tuple[str, ...] = ("gpt-neox", "phi", "llama", "mistral", "mamba")
    V: int = 10
    L: int = 9
    replacement: bool = False
    kl_bits: float = 0.005
    n_steps: int = 700
    budget_seconds: float = 200.0
    seeds: tuple[int, ...] = (1, 2, 3)

    name: ClassVar[str] = "training_speed"
    question: ClassVar[str] = "What does it cost to come close to the posterior, by our recipe and by the papers'?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.registry import load_entry

        from ..training.sampling import evaluation_generators

        check_distinct(self.name, "networks", self.networks)
        check_distinct(self.name, "seeds", self.seeds)
        check_positive(self.name, vars(self), ("kl_bits", "budget_seconds"))
        task = load_entry("tunnel", "bijection")(V=self.V, L=self.L, replacement=self.replacement)
        races = [
            Race.of(task, Network(arch=arch), recipe, self.recipe(recipe, seed))
            for arch in self.networks
            for recipe in (OURS, PAPERS)
            for seed in self.seeds
        ]
        held_out = {seed: task.sample(evaluation_generators(seed)[0], N_HELD_OUT) for seed in self.seeds}
        while running := [race for race in races if not race.is_over(self.kl_bits, self.budget_seconds)]:
            for race in running:
                race.take_a_turn(held_out[race.recipe.seed], _WORTH_A_LOOK * self.kl_bits)
            progress(len(races) - len(running), len(races))
        for race in races:
            race.look(held_out[race.recipe.seed])
        groups = [races[i : i + len(self.seeds)] for i in range(0, len(races), len(self.seeds))]
        return Findings(
            self.name,
            {f"{of[0].recipe_name}_{of[0].arch.replace('-', '_')}_seconds": self._scalar(of) for of in groups},
            {"trainings": self._table(races)},
            notes=(
                "Both recipes have the same network, start, batches and curriculum from one seed. The papers' "
                "rate is constant but for a fall of one in a hundred thousand a step. Steps alone are timed, and CPU "
                "time still depends on what else the machine does.",
            ),
            headline=tuple(f"{OURS}_{arch.replace('-', '_')}_seconds" for arch in self.networks),
        )

    def recipe(self, name: str, seed: int) -> Recipe:
        """The recipe of this name; for the papers' the optimiser is put in its place by `Race`."""
        alike = {"n_copies": self.V, "seed": seed}
        if name == OURS:
            return Recipe(n_steps=self.n_steps, **alike)
        return Recipe(n_steps=100_000, optimiser="adamw", lr_adamw=1e-3, n_warmup=1, **alike)

    def _scalar(self, races: Sequence["Race"]) -> Scalar:
        """The mean over the seeds of one network and recipe; undefined where one of them did not come there."""
        from .over_seeds import mean_over_seeds

        first, short = races[0], [race for race in races if race.kl_bits > self.kl_bits]
        meaning = f"CPU time of the steps to {self.kl_bits:g} bits of KL: {first.arch}, {first.recipe_name}"
        if short:
            ended = "; ".join(
                f"{race.seconds:.0f} s, {race.state.step} steps: {race.kl_bits:.3g} bits" for race in short
            )
            reason = f"not reached in {len(short)} of {len(races)} trainings ({ended})"
            return Scalar.undefined(reason, "s", n=len(races), n_unit="seed", meaning=meaning)
        null = "a cost: there is none to compare with"
        return mean_over_seeds([race.seconds for race in races], "s", null, meaning)

    def _table(self, races: Sequence["Race"]) -> Table:
        rows = [
            {
                "network": race.arch,
                "recipe": race.recipe_name,
                "seed": race.recipe.seed,
                "is_reached": race.kl_bits <= self.kl_bits,
                "core_seconds": race.seconds,
                "steps": race.state.step,
                "kl_bits": race.kl_bits,
                "n_parameters": race.n_parameters,
            }
            for race in races
        ]
        units = {"network": LABEL, "recipe": LABEL, "seed": LABEL, "is_reached": "boolean", "core_seconds": "s",
                 "steps": "steps", "kl_bits": "bits", "n_parameters": "1"}  # fmt: skip
        return Table.from_rows(rows, units, "Every training where it ended; KL on sequences it has not seen.")


@dataclass
class Race:
    """One training on its way; `kl_bits` on held-out sequences, when they were last read."""

    arch: str
    recipe_name: str
    recipe: Recipe
    sampler: "BatchSampler"
    state: "TrainingState"
    kl_bits: float = np.inf

    @classmethod
    def of(cls, task: Task, network: Network, recipe_name: str, recipe: Recipe) -> "Race":
        from ..training.loop import initial_state
        from ..training.plan import TrainingPlan
        from ..training.sampling import make_sampler

        state = initial_state(TrainingPlan(task, network, recipe))
        if recipe_name == PAPERS:
            state.optimisers = (papers_optimiser(state.model, recipe.lr_adamw),)
        state.model.train()
        return cls(network.arch, recipe_name, recipe, make_sampler(task, recipe), state)

    @property
    def seconds(self) -> float:
        return self.state.core_seconds

    @property
    def n_parameters(self) -> int:
        from ..networks.networks import n_parameters

        return n_parameters(self.state.model)

    def is_over(self, kl_bits: float, budget_seconds: float) -> bool:
        is_spent = self.recipe_name == PAPERS and self.seconds >= budget_seconds
        return self.kl_bits <= kl_bits or is_spent or self.state.step >= self.recipe.n_steps

    def take_a_turn(self, held_out: Sequences, worth_a_look: float) -> None:
        """A few steps, and a look at the held-out sequences where that may end it; looking is not timed."""
        from ..training.loop import update

        for _ in range(min(STEPS_A_TURN, self.recipe.n_steps - self.state.step)):
            update(self.state, self.sampler, self.recipe)
        is_last_stage = self.state.stage == len(self.sampler.stages) - 1
        if is_last_stage and self.state.excess_bits < worth_a_look:
            self.look(held_out)

    def look(self, held_out: Sequences) -> None:
        self.kl_bits = held_out_kl(self.state.model, held_out)


def papers_optimiser(model: "torch.nn.Module", rate: float) -> "torch.optim.Optimizer":
    """AdamW as the papers have it."""
    import torch

    return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.999), weight_decay=0.01, foreach=True)


def held_out_kl(model: "torch.nn.Module", sequences: Sequences) -> float:
    """KL(exact posterior || prediction) in bits, mean over scored positions."""
    from interp.information import BITS_PER_NAT, entropy_bits

    from ..networks.networks import predict

    model.eval()
    log_q = predict(model, sequences.tokens, sequences.scored)[..., sequences.slice_ids]
    model.train()
    cross = -(sequences.posterior * log_q).sum(axis=-1) * BITS_PER_NAT
    return float((cross - entropy_bits(sequences.posterior)).mean())
