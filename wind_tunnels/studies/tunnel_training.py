"""The study `tunnel_training`: networks trained on one task, as by `interp tunnel train`, with their figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from interp.findings import Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task

from ..evaluation.evaluation import AT_MOST_1, SIGNED, figure_scalars
from .over_seeds import Kind, Rows, TrainedStudy, mean_over_seeds, mean_scalar, values_of

OF_ONE_OR_MORE = "Intervals are over sequences for one network, and over networks, one training each, for several."


@dataclass(frozen=True)
class TunnelTraining(TrainedStudy):
    """A training of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe."""

    task: str = "bijection"
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)

    name: ClassVar[str] = "tunnel_training"
    question: ClassVar[str] = "How close does a network of these sizes come to the exact posterior of this task?"

    headline = ("kl_bits", "mae_per_sequence_bits")
    intervals = OF_ONE_OR_MORE

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        from ..evaluation.checkpoint import EVAL_SEED, evaluate_model

        assert model.card is not None, "a training leaves one"
        found = evaluate_model(model.module, task, horizon=model.card["recipe"]["horizon"])
        sizes = f"{model.info.n_parameters:,} parameters, {model.card['step']} steps"
        notes = (*found.notes, f"{sizes}. Fresh sequences, seed {EVAL_SEED}.")
        baselines = {"baselines": found.baselines} if model.card["seed"] == self.seeds[0] else {}  # the same for all
        return figure_scalars(found) | {"by_position": found.by_position, "notes": notes} | baselines

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        return evaluation_scalars(rows)


def evaluation_scalars(rows: Rows) -> dict[str, Scalar]:
    """The figures of one network, or their means over networks evaluated on the same sequences."""
    of_first = {name: each for name, each in rows[0].items() if isinstance(each, Scalar)}
    return of_first if len(rows) == 1 else {name: _mean(name, rows) for name in of_first}


def _mean(name: str, rows: Rows) -> Scalar:
    first, figure = rows[0][name], name.removesuffix("_own")
    is_signed, most = figure.endswith(SIGNED), 1.0 if figure.endswith(AT_MOST_1) else np.inf
    kind = Kind(first.unit, -np.inf if is_signed else 0.0, most)
    mean = mean_over_seeds if is_signed else mean_scalar
    return mean(values_of(rows, name), kind, first.null or first.null_reason, first.meaning)
