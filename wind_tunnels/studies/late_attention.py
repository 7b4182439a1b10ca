"""The study `late_attention`: is the attention of the upper layers needed to carry a belief beyond the trained length?

Source: Paper I (arXiv 2512.22471), which trains at K = 20 and reads at K = 50 with the top two of nine layers off.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from interp.findings import Null, Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task

from ..validation import Conflict
from .over_seeds import Rows, TrainedStudy, Trainings, mean_scalar, ratio_scalar, values_of


@dataclass(frozen=True)
class LateAttention(TrainedStudy):
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

    headline = ("error_within_ratio", "error_beyond_ratio")

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            f"Read on {self.length} symbols. Rotary embedding, not learned positions as in the paper: positions beyond "
            "the trained length are no untrained vectors here.",
        )

    def trainings(self) -> Trainings:
        from ..evaluation.evaluation import longer
        from .primitives.plans import REFERENCE, plan_of

        for seed in self.seeds:
            plan = plan_of("hmm", REFERENCE, seed, self.size, self.n_steps)
            if self.trained_length is not None:
                plan = replace(plan, task=plan.task.lengthened(self.trained_length))
            longer(plan.task, self.length)  # refused before anything is trained
            for arm, kept in (("whole", None), ("off", tuple(range(self.n_layers - self.n_off)))):
                network = replace(plan.network, n_layers=self.n_layers, attention_layers=kept)
                yield {"arm": arm}, replace(plan, network=network, variant=f"{arm}-seed{seed}")

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        from ..evaluation.checkpoint import evaluate_longer
        from ..evaluation.evaluation import figure_scalars

        return figure_scalars(evaluate_longer(model.module, task, self.length, n=self.n))

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        words = {"whole": "all attention on", "off": f"attention off in the top {self.n_off} layers"}
        scalars, none = {}, Null("the exact posterior", 0.0, (0.0, 0.0))
        for place, where in {"within": "up to the trained length", "beyond": "beyond it"}.items():
            values = {arm: values_of(rows, f"mae_per_sequence_bits_{place}", arm=arm) for arm in words}
            for arm, mine in values.items():
                meaning = f"mean distance of the predictive entropy from the exact one {where}, {words[arm]}"
                scalars[f"error_{place}_{arm}"] = mean_scalar(mine, "error", none, meaning)
            scalars[f"error_{place}_ratio"] = ratio_scalar(
                values["off"], values["whole"], f"error {where} without late attention over that with it, seed by seed"
            )
        return scalars
