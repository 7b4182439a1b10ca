"""The study `belief_clusters`: does the final stream gather by the most likely hidden state, over seeds?

One training for every seed; the probes `belief`, `manifold` and `value_axis` read the residual stream of each. Numbers
are means over seeds with t intervals; the silhouette is held, seed by seed, against the one that states permuted
between sequences give.

Source: Paper I (arXiv 2512.22471), which shows five clusters in one Mamba.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from interp.findings import Findings
from interp.study import Study
from interp.system.progress import Report
from interp.table import LABEL

SHOWN: Mapping[str, tuple[str, str, str]] = {
    "silhouette": ("belief", "silhouette", "how clearly the final stream gathers by the most likely state: 1 in tight, "
                   "distant groups, 0 where the groups overlap"),
    "pc1_share": ("manifold", "pc1_share", "share of the final stream's variance along its first principal axis"),
    "bayes_r2": ("value_axis", "bayes_r2", "held-out R² of a ridge readout of the exact entropy"),
}  # fmt: skip
"""Means over networks: the probe, its number, and what it is."""

BY_ITSELF = "a number of each network: its own record has its null"


@dataclass(frozen=True)
class BeliefClusters(Study):
    """Networks of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe.

    `n_pool` sequences are read of every network; `n_permutations` exchanges are the null of its silhouette.
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
        from .over_seeds import difference_scalar, mean_over_seeds, plans_over_seeds, read_by_probes, scalars_table

        # means over networks are taken: draws behind other nulls of one network may be few
        few = {"n_permutations": 50}
        asked: dict[str, dict[str, Any]] = {
            "belief": {"sites": "resid", "interchange": False, "n_permutations": self.n_permutations},
            "manifold": {"site": "resid", **few},
            "value_axis": {"sites": "resid", **few},
        }
        read, kl_bits, models = read_by_probes(plans_over_seeds(self), work, progress, asked, self.n_pool)
        found = [{name: of[probe][field] for name, (probe, field, _) in SHOWN.items()} for of in read]
        values = {name: [scalars[name].value for scalars in found] for name in SHOWN}
        nulls = [null.value if (null := scalars["silhouette"].null) else np.nan for scalars in found]
        shown = {
            name: mean_over_seeds(values[name], found[0][name].unit, BY_ITSELF, meaning)
            for name, (_, _, meaning) in SHOWN.items()
        }
        rows = [
            {"seed": seed, **scalars, "silhouette_null": null}
            for seed, scalars, null in zip(self.seeds, found, nulls, strict=True)
        ]
        units = {"seed": LABEL} | dict.fromkeys((*SHOWN, "silhouette_null"), "1")
        return Findings(
            self.name,
            shown
            | {
                "silhouette_beyond_null": difference_scalar(
                    values["silhouette"], nulls, "1",
                    "silhouette by the most likely state, less that by the states of other sequences",
                ),
                "kl_bits": mean_over_seeds(kl_bits, "bits", BY_ITSELF, "KL(exact posterior || prediction)"),
            },
            {"seeds": scalars_table(rows, units, "Each network by itself; intervals are over sequences."),
             "models": models},
            notes=("Intervals are over seeds of the training; the table has every network by itself.",),
            headline=("silhouette", "silhouette_beyond_null"),
        )  # fmt: skip
