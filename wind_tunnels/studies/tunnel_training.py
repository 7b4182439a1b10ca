"""The study `tunnel_training`: networks trained on one task, as by `interp tunnel train`, with their figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interp.findings import Findings, Scalar
from interp.system.progress import Report
from interp.table import LABEL, Table

from ..evaluation.evaluation import SIGNED, Evaluation, figure_scalars
from .over_seeds import CheckedStudy, mean_over_seeds, mean_scalar, models_table, plans_over_seeds, trained


@dataclass(frozen=True)
class TunnelTraining(CheckedStudy):
    """A training of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe."""

    task: str = "bijection"
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)

    name: ClassVar[str] = "tunnel_training"
    question: ClassVar[str] = "How close does a network of these sizes come to the exact posterior of this task?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from ..evaluation.checkpoint import EVAL_SEED, evaluate_model
        from ..networks.weights import load_weights

        plans = plans_over_seeds(self)
        trainings = [*trained(plans, work, progress)]
        found = [
            evaluate_model(load_weights(training.folder), plan.task, horizon=plan.recipe.horizon)
            for training, plan in zip(trainings, plans, strict=True)
        ]
        card, tables = trainings[0].card, [evaluation.by_position for evaluation in found]
        what = "One training" if len(found) == 1 else f"{len(found)} trainings; intervals are over them"
        sizes = f"{card.n_parameters:,} parameters, {card.step} steps"
        return Findings(
            self.name,
            evaluation_scalars(found),
            {
                "by_position": Table.stacked(
                    [{"seed": seed, **table.columns} for seed, table in zip(self.seeds, tables, strict=True)],
                    {"seed": LABEL, **tables[0].units}, tables[0].caption,
                ),
                "baselines": found[0].baselines,
                "models": models_table(trainings),
            },
            notes=(*found[0].notes, f"{what}: {sizes}. Fresh sequences, seed {EVAL_SEED}."),
            headline=("kl_bits", "mae_per_sequence_bits"),
        )  # fmt: skip


def evaluation_scalars(found: Sequence[Evaluation]) -> dict[str, Scalar]:
    """The figures of one network, or their means over networks evaluated on the same sequences."""
    of_first = figure_scalars(found[0])
    if len(found) == 1:
        return of_first
    return {
        name: (mean_over_seeds if name.endswith(SIGNED) else mean_scalar)(
            [evaluation.figures[name].value for evaluation in found],
            scalar.unit, scalar.null or scalar.null_reason, scalar.meaning,
        )
        for name, scalar in of_first.items()
    }  # fmt: skip
