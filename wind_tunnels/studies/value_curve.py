"""The study `value_curve`: do last-layer values, averaged over rows of equal exact entropy, lie along one line?

Source: Paper I (arXiv 2512.22471), whose script reads the means of one sequence.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import interp
from interp.information import entropy_bits
from interp.model import Model
from interp.need import Need
from interp.statistics.correlation import midranks, unit_length
from interp.statistics.spectra import principal_axes
from interp.tunnel import Task

from .over_seeds import TunnelStudy

VALUES, UNTRAINED = Need("v"), "untrained copies"


@dataclass(frozen=True)
class ValueCurve(TunnelStudy):
    """Mean values of `tunnels` (a name or a folder pattern with `*`), each over `n_pool` sequences."""

    n_pool: int = 400

    name: ClassVar[str] = "value_curve"
    question: ClassVar[str] = "Do mean values lie along one line of entropy, more than before any training?"

    headline = ("pc1_share", "entropy_order")
    rules: ClassVar = {"n_pool": 20}
    beside_untrained = True
    numbers: ClassVar = {
        "pc1_share": (
            "share", UNTRAINED, "share of the variance of the mean values along their first principal axis",
        ),
        "entropy_order": ("cosine", UNTRAINED, "|Spearman's ρ| of that axis with the exact entropy"),
    }  # fmt: skip

    def read(self, model: Model, task: Task) -> dict[str, float]:
        read = interp.collect(model, interp.sampled_prompts(task, self.n_pool), [VALUES])
        assert read.posterior is not None, "a tunnel's prompts have one"
        values = read[VALUES][-1].astype(np.float64).reshape(len(read.posterior), -1)
        entropy, group = np.unique(entropy_bits(read.posterior).round(6), return_inverse=True)
        means = np.array([values[group == i].mean(axis=0) for i in range(len(entropy))])
        axes = principal_axes(means - means.mean(axis=0), 1)
        along, order = unit_length(midranks(np.stack([axes.scores[:, 0], entropy])))
        total = np.square(means - means.mean(axis=0)).sum()
        return {"pc1_share": float(np.square(axes.scores).sum() / total), "entropy_order": float(abs(along @ order))}
