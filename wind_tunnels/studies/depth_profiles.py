"""The study `depth_profiles`: what changes from layer to layer, in networks trained from several seeds?

A trend is Spearman's ρ over the layers of one network; its interval is over networks, since layers are no replicates.

Source: Paper I (arXiv 2512.22471), six layers of six heads; its pictures show one network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from interp.findings import Findings, Null, Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task

from .over_seeds import Rows, TrainedStudy, kl_of, ratio_scalar, read_by, values_of

_FLAT = Null("no trend", 0.0, (0.0, 0.0))

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
class DepthProfiles(TrainedStudy):
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

    headline = ("attention_reduction", *TRENDS, "layers_needed")
    notes = (
        "Within one network neighbouring layers resemble one another, and dealing layers at random is no null. "
        "Decoding early layers with the last norm and head may miss what they hold in other coordinates.",
    )
    numbers: ClassVar = {
        "attention_reduction": ("1", _FLAT, "(H of the first layer − H of the last) / H of the first"),
        **{name: ("correlation", _FLAT, f"Spearman's ρ {what}") for name, (_, _, what) in TRENDS.items()},
        "layers_needed": (
            "share", Null("no layer", 0.0, (0.0, 0.0)),
            f"share of layers whose bypass multiplies the entropy error by {NEEDED_RATIO:g} or more",
        ),
        "kl_bits": ("error", Null("the exact posterior", 0.0, (0.0, 0.0)), "KL(exact posterior || prediction)"),
    }  # fmt: skip
    more: ClassVar = {"bypass_ratio_min": "1"}

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        few = {"n_permutations": 50, "n_bootstrap": 50}  # only values are read
        probes: dict[str, dict[str, object]] = {probe: {**few} for _, probe, *_ in PROFILES.values()}
        probes["heads"] |= {"how": "zero", "n_random": 5, "n_sets": 2, "n_prompts": self.n_prompts}
        found = read_by(probes, model, n_pool=self.n_pool)
        layers = {name: profile(name, found) for name in PROFILES}
        ratio = layers["bypass_ratio"]
        return {
            "attention_reduction": found["attention_entropy"]["reduction"].value,
            **{name: found[probe][field].value for name, (probe, field, _) in TRENDS.items()},
            "layers_needed": float((ratio >= NEEDED_RATIO).mean()),
            "bypass_ratio_min": float(ratio.min()),
            "kl_bits": kl_of(model),
            "layers": Table(
                {"layer": np.arange(len(ratio)), **layers},
                {"layer": "layer"} | {name: unit for name, (unit, *_) in PROFILES.items()},
                "Every network and layer: attention at the scored positions, mean over heads; KL from the posterior of "
                "what the residual stream decodes to after the layer; entropy error with the layer bypassed over that "
                "without.",
            ),
        }

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        smallest = ratio_scalar(
            values_of(rows, "bypass_ratio_min"), 1.0,
            "entropy error with a layer bypassed over that without, the smallest of all layers; geometric mean",
        )  # fmt: skip
        return super().scalars(rows, tables) | {"bypass_ratio_min": smallest}


def profile(name: str, findings: Mapping[str, Findings]) -> np.ndarray:
    """One of `PROFILES` of one network, one value per layer."""
    _, probe, table, column, only = PROFILES[name]
    rows = findings[probe].tables[table]
    for key, value in only.items():
        rows = rows.where(rows[key] == value)
    return rows[column][1:] if "depth" in rows else rows[column]
