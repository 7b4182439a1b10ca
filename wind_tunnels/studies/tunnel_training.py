"""The study `tunnel_training`: one network trained on one task, as `interp tunnel train` does it, with its figures.

What it leaves behind in the folder of its work is an ordinary tunnel, which probes and other studies can read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interp.findings import Findings
from interp.study import Study
from interp.system.progress import Report

from ..evaluation.scalars import figure_scalars, uniform_nulls
from ..plans.settings import read_settings


@dataclass(frozen=True)
class TunnelTraining(Study):
    """A training of `task`; `settings` are field=value of the task, the network or the recipe."""

    task: str = "bijection"
    settings: tuple[str, ...] = ()

    name: ClassVar[str] = "tunnel_training"
    question: ClassVar[str] = "How close does a network of these sizes come to the exact posterior of this task?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.registry import load_entry

        from ..evaluation.checkpoint import EVAL_SEED, N_EVAL, evaluate_model
        from ..networks.weights import load_weights
        from ..plans.train_tunnel import make_plan, train_tunnel
        from ..training.state import TrainingState
        from .over_seeds import models_table

        plan = make_plan(load_entry("tunnel", self.task), read_settings(self.settings))

        def on_step(state: TrainingState) -> None:
            if state.step % 10 == 0:
                progress(state.step, plan.recipe.n_steps)

        training = train_tunnel(plan, work, on_step)
        evaluation = evaluate_model(load_weights(training.folder), plan.task)
        card = training.card
        sizes = f"{card.n_parameters:,} parameters, {card.step} steps"
        return Findings(
            self.name,
            figure_scalars(evaluation.figures, uniform_nulls(evaluation.baselines), N_EVAL),
            {
                "by_position": evaluation.by_position,
                "baselines": evaluation.baselines,
                "models": models_table([training]),
            },
            notes=(*evaluation.notes, f"One training: {sizes}. Fresh sequences, seed {EVAL_SEED}."),
            headline=("kl_bits", "mae_per_sequence_bits"),
        )
