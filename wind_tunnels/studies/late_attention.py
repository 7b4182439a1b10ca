"""The study `late_attention`: is the attention of the upper layers needed to carry a belief beyond the trained length?

Source: Paper I (arXiv 2512.22471), which trains at K = 20 and reads at K = 50 with the top two of nine layers off.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from interp.findings import Findings, Null
from interp.system.progress import Report
from interp.table import LABEL, Table

from ..validation import Conflict
from .over_seeds import CheckedStudy, by_network, mean_scalar, models_table, ratio_scalar


@dataclass(frozen=True)
class LateAttention(CheckedStudy):
    """HMM filters of `n_layers` layers, trained with and without attention in the top `n_off`, for every seed.

    `trained_length`: symbols in training (None: the recipe's); `length`: in evaluation. See `primitives` for the rest.
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    n_layers: int = 3
    n_off: int = 2
    trained_length: int | None = None
    length: int = 20
    size: Literal["small", "papers"] = "small"
    n_steps: int | None = None
    n: int = 2000

    name: ClassVar[str] = "late_attention"
    question: ClassVar[str] = "Is the attention of the upper layers needed to filter beyond the trained length?"

    def conflicts(self) -> Iterator[Conflict]:
        found = f"of {self.n_layers} layers the top {self.n_off}: there is no layer to switch off, or none to keep on"
        yield not 0 < self.n_off < self.n_layers, found, "Choose n_off between 1 and n_layers - 1."

    def measure(self, work: Path, progress: Report) -> Findings:
        from ..evaluation.checkpoint import evaluate_longer
        from ..evaluation.evaluation import longer
        from ..networks.weights import load_weights
        from ..plans.train_tunnel import train_tunnels
        from .primitives.plans import REFERENCE, plan_of

        words = {"whole": "all attention on", "off": f"attention off in the top {self.n_off} layers"}
        plans = {}
        for seed in self.seeds:
            plan = plan_of("hmm", REFERENCE, seed, self.size, self.n_steps)
            if self.trained_length is not None:
                plan = replace(plan, task=plan.task.lengthened(self.trained_length))
            longer(plan.task, self.length)  # refused before anything is trained
            for arm in words:
                kept = None if arm == "whole" else tuple(range(self.n_layers - self.n_off))
                network = replace(plan.network, n_layers=self.n_layers, attention_layers=kept)
                plans[arm, seed] = replace(plan, network=network, variant=f"{arm}-seed{seed}")
        trainings = train_tunnels(plans.values(), work, progress)
        found = [
            evaluate_longer(load_weights(training.folder), plan.task, self.length, n=self.n).figures
            for plan, training in zip(plans.values(), trainings, strict=True)
        ]
        runs = Table.from_rows(
            [
                {"arm": arm, "seed": seed} | {name: figure.value for name, figure in figures.items()}
                for (arm, seed), figures in zip(plans, found, strict=True)
            ],
            {"arm": LABEL, "seed": LABEL} | {name: figure.unit for name, figure in found[0].items()},
            "Every training, read on longer sequences.",
        )
        scalars, none = {}, Null("the exact posterior", 0.0, (0.0, 0.0))
        for place, where in {"within": "up to the trained length", "beyond": "beyond it"}.items():
            values = {arm: by_network(runs, f"mae_per_sequence_bits_{place}", arm=arm) for arm in words}
            for arm, mine in values.items():
                meaning = f"mean distance of the predictive entropy from the exact one {where}, {words[arm]}"
                scalars[f"error_{place}_{arm}"] = mean_scalar(mine, "bits", none, meaning)
            scalars[f"error_{place}_ratio"] = ratio_scalar(
                values["off"], values["whole"], f"error {where} without late attention over that with it, seed by seed"
            )
        return Findings(
            self.name,
            scalars,
            {"runs": runs, "models": models_table(trainings)},
            notes=(
                f"Read on {self.length} symbols; intervals are over seeds of the training. Rotary embedding, not "
                "learned positions as in the paper: positions beyond the trained length are no untrained vectors here.",
            ),
            headline=("error_within_ratio", "error_beyond_ratio"),
        )
