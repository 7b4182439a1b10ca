"""The study `training_courses`: does attention settle before precision, over several trainings?

Source: Paper II (arXiv 2512.22473), which shows the course of one training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from interp.findings import Null, Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task

from .over_seeds import Rows, TrainedStudy, mean_over_seeds, ratio_scalar, read_by

PROBE = "dynamics"
EXCHANGED = {
    "exchange_lead_share": "network_share less patterns_share: above 0 attention was there before the rest",
    "patterns_share": "share of the error still missing that the attention patterns of a late step alone bring",
    "network_share": "share of the error still missing that is missing with the final attention patterns too",
}
INDICES = ("dissociation_index", "dissociation_index_output", "dissociation_index_values")
_SHARES = ("patterns_share", "network_share")
_STEPS = ("frame_step", "error_step", "values_step")
_COURSES = {"step": "steps", "kl": "bits", "frame_tv": "fraction", "value_distance": "1"}
"""Columns of the probe's table by checkpoint, with their units."""


@dataclass(frozen=True)
class TrainingCourses(TrainedStudy):
    """Trainings of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe.

    The probe `dynamics` reads `n_pool` sequences at every checkpoint, with `n_permutations` and `n_bootstrap`.
    """

    task: str = "bijection"
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1, 2, 3)
    n_pool: int = 200
    n_permutations: int = 200
    n_bootstrap: int = 200

    name: ClassVar[str] = "training_courses"
    question: ClassVar[str] = "Does attention settle before precision does, in one training as in another?"

    headline = (*EXCHANGED, *INDICES)
    keep = "log"
    notes = (
        "Every training is read at its own checkpoints, and distances are from its own end. A course of which a seed "
        "does not say between which checkpoints it settles leaves its index underpowered. Indices describe distances "
        "and have no p; what patterns do is asked by exchanging them with the end's.",
    )

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        settings = {name: getattr(self, name) for name in ("n_permutations", "n_bootstrap")}
        found = read_by({PROBE: settings | {"n_exchanged": self.n_pool}}, model, n_pool=self.n_pool)[PROBE]
        courses = Table(
            {name: found.tables["by_step"][name] for name in _COURSES}, _COURSES,
            "Every training at its checkpoints: KL from the posterior, and the distance of attention rows (total "
            "variation) and of values from those of its own end.",
        )  # fmt: skip
        return {name: found[name] for name in (*_SHARES, *INDICES, *_STEPS)} | {"courses": courses}

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        exchanged = {name: exchange_over_seeds(name, rows) for name in EXCHANGED}
        return exchanged | {name: index_over_seeds(name, rows) for name in INDICES}


def index_over_seeds(name: str, rows: Rows) -> Scalar:
    """The geometric mean of an index over trainings; underpowered if it is in any of them."""
    given = [row[name] for row in rows]
    undefined = next((s for s in given if not np.isfinite(s.value)), None)
    if undefined is not None:
        reason = f"in a training {undefined.interval_reason}"
        return replace(undefined, interval_reason=reason, null_reason=reason, n=len(given), n_unit="seed")
    meaning = f"Geometric mean over seeds: {given[0].meaning.partition(' Frame between')[0]}"
    pooled = ratio_scalar([s.value for s in given], [1.0] * len(given), meaning)
    underpowered = pooled.underpowered or any(s.underpowered for s in given)
    null_reason = given[0].null_reason or "a description of distances"
    return replace(pooled, null=None, null_reason=null_reason, p=None, underpowered=underpowered)


def exchange_over_seeds(name: str, rows: Rows) -> Scalar:
    """The mean of a share over trainings; the lead has the null 0, shares have none."""
    is_lead = name == "exchange_lead_share"
    patterns, network = ([row[of].value for row in rows] for of in _SHARES)
    values = list(np.subtract(network, patterns)) if is_lead else [row[name].value for row in rows]
    if not np.isfinite(values).all():
        reason = "in a training no checkpoint is clearly worse than the end"
        return Scalar.undefined(reason, underpowered=True, n=len(values), n_unit="seed", meaning=EXCHANGED[name])
    null = Null("patterns and the rest equally far", 0.0, (0.0, 0.0)) if is_lead else "a share: it is read by 0 and 1"
    return mean_over_seeds(values, "1", null, EXCHANGED[name])
