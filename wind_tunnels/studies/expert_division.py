"""The study `expert_division`: do the experts of a mixture divide domains between them?

Source: ours. Paper III (arXiv 2512.23752), section 5.7, measures the geometry of Mixtral and nothing of its experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from interp.findings import Findings, Null, Scalar
from interp.system.progress import Report
from interp.table import LABEL

from .over_seeds import (
    OVER_SEEDS,
    CheckedStudy,
    by_network,
    difference_scalar,
    mean_over_seeds,
    plans_over_seeds,
    read_by_probes,
    scalars_table,
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
class ExpertDivision(CheckedStudy):
    """Mixtures of experts from each of `seeds`; `settings` are field=value of the network or the recipe.

    `n_pool` sequences are read from every network; each null has `n_permutations`.
    """

    settings: tuple[str, ...] = ("arch=mixtral", "n_layers=2", "n_steps=700", "batch=64")
    seeds: tuple[int, ...] = (1, 2, 3)
    n_pool: int = 400
    n_permutations: int = 100

    name: ClassVar[str] = "expert_division"
    question: ClassVar[str] = "Do the experts of a mixture divide domains between them, in one network as in another?"

    def measure(self, work: Path, progress: Report) -> Findings:
        plans = [
            plan
            for domains, (_, tasks) in DOMAINS.items()
            for plan in plans_over_seeds(
                self, "mixture", fixed={"components": list(tasks), "symbols": "shared"}, variant=f"{domains}-"
            )
        ]
        probes = {"components": {"experts": True, "n_permutations": self.n_permutations}}
        read, kl_bits, models = read_by_probes(plans, work, progress, probes, self.n_pool)
        labels = [{"domains": domains, "seed": seed} for domains in DOMAINS for seed in self.seeds]
        rows = [
            label | {name: of["components"][number] for name, (number, _) in SHOWN.items()}
            for label, of in zip(labels, read, strict=True)
        ]
        units = {"domains": LABEL, "seed": LABEL} | dict.fromkeys(SHOWN, "bits")
        networks = scalars_table(rows, units, with_p=True)
        scalars: dict[str, Scalar] = {}
        for domains, (what, _) in DOMAINS.items():
            for name, (_, within) in SHOWN.items():
                null = Null(f"routing permuted between sequences within {within}", 0.0, (0.0, 0.0))
                scalars[f"{name}_{domains}"] = mean_over_seeds(
                    by_network(networks, name, domains=domains), "bits", null, f"{_SAYS} at a given {within}, {what}"
                )
            mine = [bits for bits, label in zip(kl_bits, labels, strict=True) if label["domains"] == domains]
            why = "how well it was trained: no chance level"
            scalars[f"kl_bits_{domains}"] = mean_over_seeds(mine, "bits", why, f"KL from the posterior, {what}")
        for name, (_, within) in SHOWN.items():
            different, same = (by_network(networks, name, domains=domains) for domains in DOMAINS)
            scalars[f"{name}_gained"] = difference_scalar(
                different, same, "bits",
                f"{_SAYS} at a given {within}, domains that differ less one task under two domain tokens",
            )  # fmt: skip
        return Findings(
            self.name,
            scalars,
            {"seeds": networks, "models": models},
            notes=(OVER_SEEDS,),
            headline=tuple(f"experts_beyond_token_{end}" for end in (*DOMAINS, "gained")),
        )
