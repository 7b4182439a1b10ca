"""The study `belief_clusters`: does the final residual stream cluster by the most likely hidden state?

Source: Paper I (arXiv 2512.22471), which shows five clusters in one Mamba.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from interp.findings import Findings
from interp.system.progress import Report
from interp.table import LABEL

from .over_seeds import (
    OVER_SEEDS,
    CheckedStudy,
    difference_scalar,
    mean_over_seeds,
    plans_over_seeds,
    read_by_probes,
    scalars_table,
    value_and_null,
)

SHOWN: Mapping[str, tuple[str, str, str]] = {
    "silhouette": ("belief", "silhouette", "how clearly the final stream gathers by the most likely state: 1 in tight, "
                   "distant groups, 0 where the groups overlap"),
    "pc1_share": ("manifold", "pc1_share", "share of the final stream's variance along its first principal axis"),
    "bayes_r2": ("value_axis", "bayes_r2", "held-out R² of a ridge readout of the exact entropy"),
}  # fmt: skip
"""Means over networks: the probe, its number, and the meaning."""

BY_ITSELF = "a number of each network: its own record has its null"


@dataclass(frozen=True)
class BeliefClusters(CheckedStudy):
    """Networks of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe.

    `n_pool` sequences are read from every network; the null of its silhouette has `n_permutations`.
    """

    task: str = "hmm-fixed"
    settings: tuple[str, ...] = ("predict=state", "arch=mamba", "n_layers=2", "n_steps=500", "batch=64")
    seeds: tuple[int, ...] = (1, 2, 3)
    n_pool: int = 300
    n_permutations: int = 100

    name: ClassVar[str] = "belief_clusters"
    question: ClassVar[str] = (
        "Does the final stream gather by the most likely hidden state, in one network as in another?"
    )

    def measure(self, work: Path, progress: Report) -> Findings:
        probes: dict[str, dict[str, Any]] = {
            "belief": {"sites": "resid", "interchange": False, "n_permutations": self.n_permutations},
            "manifold": {"site": "resid", "n_permutations": 50},  # only the value is read, so few are enough
            "value_axis": {"sites": "resid", "n_permutations": 50},
        }
        read, kl_bits, models = read_by_probes(plans_over_seeds(self), work, progress, probes, self.n_pool)
        rows = [
            {"seed": seed, **{name: of[probe][field] for name, (probe, field, _) in SHOWN.items()},
             "silhouette_null": value_and_null(of["belief"]["silhouette"])[1]}
            for seed, of in zip(self.seeds, read, strict=True)
        ]  # fmt: skip
        seeds = scalars_table(rows, {"seed": LABEL} | dict.fromkeys((*SHOWN, "silhouette_null"), "1"))
        scalars = {
            name: mean_over_seeds(seeds[name].tolist(), read[0][probe][field].unit, BY_ITSELF, meaning)
            for name, (probe, field, meaning) in SHOWN.items()
        }
        scalars["silhouette_beyond_null"] = difference_scalar(
            seeds["silhouette"].tolist(), seeds["silhouette_null"].tolist(), "1",
            "silhouette by the most likely state, less that by the states of other sequences",
        )  # fmt: skip
        scalars["kl_bits"] = mean_over_seeds(kl_bits, "bits", BY_ITSELF, "KL(exact posterior || prediction)")
        return Findings(
            self.name, scalars, {"seeds": seeds, "models": models}, notes=(OVER_SEEDS,),
            headline=("silhouette", "silhouette_beyond_null"),
        )  # fmt: skip
