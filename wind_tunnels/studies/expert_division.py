"""The study `expert_division`: do the experts of a mixture divide domains between them?

Source: ours. Paper III (arXiv 2512.23752), section 5.7, measures the geometry of Mixtral and nothing of its experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from interp.findings import Null, Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task

from .over_seeds import (
    Rows,
    TrainedStudy,
    Trainings,
    difference_scalar,
    kl_of,
    mean_over_seeds,
    plans_over_seeds,
    read_by,
    values_of,
)

_BIJECTION = {"task": "bijection", "V": 8, "L": 10}

DOMAINS: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]] = {
    "different": ("domains that differ", (_BIJECTION, {"task": "regression", "L": 10, "noise": 0.4})),
    "same": ("one task under two domain tokens", (_BIJECTION, _BIJECTION)),
}
"""Pairs of domains, their relation, and their tasks, which have the same scored positions and share their tokens."""

SHOWN = {
    "experts": ("expert_domain_information", "position"),
    "experts_beyond_token": ("expert_domain_information_beyond_token", "position and token"),
}
"""By prefix of a number's name: the number of `components`, and the strata within which routing is permuted."""

_SAYS = "information about the domain in the chosen expert"


@dataclass(frozen=True)
class ExpertDivision(TrainedStudy):
    """Mixtures of experts from each of `seeds`; `settings` are field=value of the network or the recipe.

    `n_pool` sequences are read from every network; each null has `n_permutations`.
    """

    settings: tuple[str, ...] = ("arch=mixtral", "n_layers=2", "n_steps=700", "batch=64")
    seeds: tuple[int, ...] = (1, 2, 3)
    n_pool: int = 400
    n_permutations: int = 100

    name: ClassVar[str] = "expert_division"
    question: ClassVar[str] = "Do the experts of a mixture divide domains between them, in one network as in another?"

    headline = tuple(f"experts_beyond_token_{end}" for end in (*DOMAINS, "gained"))
    more: ClassVar = {"kl_bits": "bits"}

    def trainings(self) -> Trainings:
        for domains, (_, tasks) in DOMAINS.items():
            fixed = {"components": list(tasks), "symbols": "shared"}
            for plan in plans_over_seeds(self, "mixture", fixed=fixed, variant=f"{domains}-"):
                yield {"domains": domains}, plan

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        probes = {"components": {"experts": True, "n_permutations": self.n_permutations}}
        found = read_by(probes, model, n_pool=self.n_pool)["components"]
        return {name: found[number] for name, (number, _) in SHOWN.items()} | {"kl_bits": kl_of(model)}

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        scalars: dict[str, Scalar] = {}
        for domains, (what, _) in DOMAINS.items():
            for name, (_, within) in SHOWN.items():
                null = Null(f"routing permuted between sequences within {within}", 0.0, (0.0, 0.0))
                scalars[f"{name}_{domains}"] = mean_over_seeds(
                    values_of(rows, name, domains=domains), "bits", null, f"{_SAYS} at a given {within}, {what}"
                )
            scalars[f"kl_bits_{domains}"] = mean_over_seeds(
                values_of(rows, "kl_bits", domains=domains), "error", "how well it was trained: no chance level",
                f"KL from the posterior, {what}",
            )  # fmt: skip
        for name, (_, within) in SHOWN.items():
            different, same = (values_of(rows, name, domains=domains) for domains in DOMAINS)
            scalars[f"{name}_gained"] = difference_scalar(
                different, same, "bits",
                f"{_SAYS} at a given {within}, domains that differ less one task under two domain tokens",
            )  # fmt: skip
        return scalars
