"""The study `belief_clusters`: does the final residual stream cluster by the most likely hidden state?

Source: Paper I (arXiv 2512.22471), which shows five clusters in one Mamba.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from interp.model import Model
from interp.tunnel import Task

from .over_seeds import NO_DIFFERENCE, TrainedStudy, kl_of, read_by, value_and_null

_ALONE = "a number of each network: its own record has its null"


@dataclass(frozen=True)
class BeliefClusters(TrainedStudy):
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

    headline = ("silhouette", "silhouette_beyond_null")
    numbers: ClassVar = {
        "silhouette": ("correlation", _ALONE, "how clearly the final stream gathers by the most likely state: 1 in "
                       "tight, distant groups, 0 where the groups overlap"),
        "pc1_share": ("share", _ALONE, "share of the final stream's variance along its first principal axis"),
        "bayes_r2": ("r2", _ALONE, "held-out R² of a ridge readout of the exact entropy"),
        "silhouette_beyond_null": ("1", NO_DIFFERENCE, "silhouette by the most likely state, less that by the states "
                                   "of other sequences"),
        "kl_bits": ("error", _ALONE, "KL(exact posterior || prediction)"),
    }  # fmt: skip

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        probes: dict[str, dict[str, Any]] = {
            "belief": {"sites": "resid", "interchange": False, "n_permutations": self.n_permutations},
            "manifold": {"site": "resid", "n_permutations": 50},  # only the value is read, so few are enough
            "value_axis": {"sites": "resid", "n_permutations": 50},
        }
        found = read_by(probes, model, n_pool=self.n_pool)
        silhouette = found["belief"]["silhouette"]
        value, null = value_and_null(silhouette)
        return {
            "silhouette": silhouette, "pc1_share": found["manifold"]["pc1_share"],
            "bayes_r2": found["value_axis"]["bayes_r2"],
            "silhouette_beyond_null": value - null, "kl_bits": kl_of(model),
        }  # fmt: skip
