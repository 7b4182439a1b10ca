"""The study `depth_profiles`: what changes from layer to layer, in networks trained from several seeds?

A trend is Spearman's ρ over the layers of one network; its interval is over networks, since layers are no replicates.

Source: Paper I (arXiv 2512.22471), six layers of six heads; its pictures show one network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from interp.findings import Findings, Null, Scalar
from interp.system.progress import Report
from interp.table import LABEL, Table

from .over_seeds import CheckedStudy, mean_over_seeds, mean_scalar, plans_over_seeds, ratio_scalar, read_by_probes

TRENDS: Mapping[str, tuple[str, str, str]] = {
    "entropy_trend": ("attention_entropy", "correlation", "of attention entropy with depth"),
    "max_weight_trend": ("qk_alignment", "max_weight_correlation", "of the largest attention weight with depth"),
    "cosine_trend": (
        "qk_alignment", "cosine_correlation", "of cos(q, k), attended minus other keys, with depth",
    ),
    "posterior_kl_trend": (
        "components", "posterior_kl_trend",
        "of KL(posterior || what the residual stream decodes to) with depth, the mean over positions",
    ),
}  # fmt: skip
"""Rank correlations over the layers of a network: the probe, its number, and the meaning."""

PROFILES: Mapping[str, tuple[str, str, str, str, Mapping[str, str]]] = {
    "attention_entropy_bits": ("bits", "attention_entropy", "by_layer", "entropy", {"positions": "scored"}),
    "max_weight": ("fraction", "qk_alignment", "by_layer", "max_weight", {}),
    "cosine": ("1", "qk_alignment", "by_layer", "cosine", {}),
    "posterior_kl_bits": ("bits", "components", "by_depth", "posterior_kl", {}),
    "bypass_ratio": ("1", "heads", "by_layer", "ratio", {"part": "layer bypassed"}),
}
"""Columns by layer: the unit, the probe, its table, the column and the rows; a depth is that after a layer."""

NEEDED_RATIO = 10.0
"""Paper I calls a layer needed whose removal multiplies the error by more than this."""


@dataclass(frozen=True)
class DepthProfiles(CheckedStudy):
    """Networks of `task` from each of `seeds`; `settings` are field=value of the task, the network or the recipe.

    `n_pool` sequences are read from every network; `n_prompts` of them with a layer bypassed.
    """

    task: str = "bijection"
    settings: tuple[str, ...] = ("n_layers=6", "n_heads=6", "d_model=48")
    seeds: tuple[int, ...] = (1, 2, 3)
    n_pool: int = 200
    n_prompts: int = 60

    name: ClassVar[str] = "depth_profiles"
    question: ClassVar[str] = "What changes from layer to layer, in one deep network as in another?"

    def measure(self, work: Path, progress: Report) -> Findings:
        few = {"n_permutations": 50, "n_bootstrap": 50}  # only values are read
        probes: dict[str, dict[str, object]] = {probe: {**few} for _, probe, *_ in PROFILES.values()}
        probes["heads"] |= {"how": "zero", "n_random": 5, "n_sets": 2, "n_prompts": self.n_prompts}
        found, kl_bits, models = read_by_probes(plans_over_seeds(self), work, progress, probes, self.n_pool)
        profiles = [{name: profile(name, findings) for name in PROFILES} for findings in found]
        layers = Table.stacked(
            [
                {"seed": seed, "layer": np.arange(len(mine["max_weight"])), **mine}
                for seed, mine in zip(self.seeds, profiles, strict=True)
            ],
            {"seed": LABEL, "layer": "layer"} | {name: unit for name, (unit, *_) in PROFILES.items()},
            "Every network and layer: attention at the scored positions, mean over heads; KL from the posterior of "
            "what the residual stream decodes to after the layer; entropy error with the layer bypassed over that "
            "without.",
        )
        return Findings(
            self.name,
            depth_scalars(found, kl_bits),
            {"layers": layers, "models": models},
            notes=(
                "A trend has its interval over networks; within one network neighbouring layers resemble one another, "
                "and dealing layers at random is no null. Decoding early layers with the last norm and head "
                "may miss what they hold in other coordinates.",
            ),
            headline=("attention_reduction", *TRENDS, "layers_needed"),
        )


def depth_scalars(found: Sequence[Mapping[str, Findings]], kl_bits: Sequence[float]) -> dict[str, Scalar]:
    """The numbers of all networks, one per seed, as means over them."""
    flat = Null("no trend", 0.0, (0.0, 0.0))
    ratios = [profile("bypass_ratio", findings) for findings in found]

    def of(probe: str, field: str) -> list[float]:
        return [findings[probe][field].value for findings in found]

    return {
        "attention_reduction": mean_over_seeds(
            of("attention_entropy", "reduction"), "1", flat, "(H of the first layer − H of the last) / H of the first"
        ),
        **{
            name: mean_over_seeds(of(probe, field), "1", flat, f"Spearman's ρ {what}")
            for name, (probe, field, what) in TRENDS.items()
        },
        "layers_needed": mean_scalar(
            [float((ratio >= NEEDED_RATIO).mean()) for ratio in ratios], "fraction", Null("no layer", 0.0, (0.0, 0.0)),
            f"share of layers whose bypass multiplies the entropy error by {NEEDED_RATIO:g} or more",
        ),
        "bypass_ratio_min": ratio_scalar(
            [float(ratio.min()) for ratio in ratios], [1.0] * len(ratios),
            "entropy error with a layer bypassed over that without, the smallest of all layers; geometric mean",
        ),
        "kl_bits": mean_scalar(
            kl_bits, "bits", Null("the exact posterior", 0.0, (0.0, 0.0)), "KL(exact posterior || prediction)"
        ),
    }  # fmt: skip


def profile(name: str, findings: Mapping[str, Findings]) -> np.ndarray:
    """One of `PROFILES` of one network, one value per layer."""
    _, probe, table, column, only = PROFILES[name]
    rows = findings[probe].tables[table]
    for key, value in only.items():
        rows = rows.where(rows[key] == value)
    return rows[column][1:] if "depth" in rows else rows[column]
