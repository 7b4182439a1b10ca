"""The tables of the components probe: layer by layer, and depth by depth."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.statistics.cosines import largest_deviation_p
from interp.statistics.estimate import mean_and_band
from interp.statistics.units import Units
from interp.table import Table, number_columns

from .depth_trend import falling_share
from .updates import FinalShares, Sizes

_LAYER_UNITS = {
    "layer": "layer", "attn_norm": "activation", "mlp_norm": "activation", "stream_norm": "activation",
    "attn_relative": "1", "mlp_relative": "1", "attn_size_share": "fraction", "attn_mlp_cosine": "1",
    "attn_final_share": "fraction", "mlp_final_share": "fraction", "attn_logit": "logits", "mlp_logit": "logits",
}  # fmt: skip

BY_LAYER = (
    "Layer by layer, mean over prompts with its 95 % bootstrap band (_low, _high). relative: length over that of the "
    "stream before; size_share: ‖a‖² / (‖a‖² + ‖m‖²); final_share: share of the final stream, with its null of random "
    "signs; logit: direct attribution to the predicted token."
)
BY_DEPTH = (
    "Depth by depth (0 is the embedding), mean over prompts with its 95 % bootstrap band; falls: share of rows that "
    "are lower than at the depth before."
)


def layer_values(
    size: Sizes, shares: FinalShares, logits: Mapping[str, Float[np.ndarray, "layer row"]]
) -> dict[str, Float[np.ndarray, "layer row"]]:
    """Everything that has one number a layer and row."""
    n_layers = len(size.attention)
    attention, feed_forward = size.relative()
    return {
        "attn_norm": size.attention, "mlp_norm": size.feed_forward, "stream_norm": size.stream,
        "attn_relative": attention, "mlp_relative": feed_forward,
        "attn_size_share": size.attention_share, "attn_mlp_cosine": size.cosine,
        "attn_final_share": shares.share[1 : 1 + n_layers], "mlp_final_share": shares.share[1 + n_layers :],
        **logits,
    }  # fmt: skip


def by_layer_table(values: Mapping[str, Float[np.ndarray, "layer row"]], shares: FinalShares, units: Units) -> Table:
    """One row a layer."""
    n_layers = len(values["attn_norm"])
    columns = {"layer": np.arange(n_layers)} | units.mean_columns(
        {name: units.means(rows) for name, rows in values.items()}
    )
    drawn = {"attn": shares.flipped[:, 1 : 1 + n_layers], "mlp": shares.flipped[:, 1 + n_layers :]}
    for block, draws in drawn.items():
        name = f"{block}_final_share"
        columns |= number_columns(name, columns[name], null=mean_and_band(draws))
    return Table(columns, _LAYER_UNITS, BY_LAYER)


@dataclass(frozen=True)
class DepthCurves:
    """Curves of the lens, and the mean KL from permuted posteriors where they are known."""

    curves: Mapping[str, Float[np.ndarray, "depth row"]]
    exchanged: Float[np.ndarray, "permutation depth"] | None = None

    @property
    def exchange_p(self) -> Float[np.ndarray, " depth"]:
        """p of the KL from the posterior at each depth, two-sided, corrected over depths."""
        assert self.exchanged is not None
        return largest_deviation_p(self.curves["posterior_kl"].mean(axis=1), self.exchanged)


def by_depth_table(depths: DepthCurves, units: Units) -> Table:
    """One row a depth."""
    values = {**depths.curves}
    values |= {f"{name}_falls": falling_share(rows) for name, rows in depths.curves.items()}
    columns = {"depth": np.arange(len(values["lens_kl"]))} | units.mean_columns(
        {name: units.means(rows) for name, rows in values.items()}
    )
    if depths.exchanged is not None:
        null = mean_and_band(depths.exchanged)
        columns |= number_columns("posterior_kl", columns["posterior_kl"], null=null, p=depths.exchange_p)
    return Table(columns, {"depth": "depth"} | {n: "fraction" if "_falls" in n else "bits" for n in values}, BY_DEPTH)
