"""Is the length of the values a gauge of uncertainty? A whole probe in one file, of a package of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Null, Scalar
from interp.need import Need
from interp.plotting import NULL, faded
from interp.probe import Figure, Probe, Readout
from interp.statistics.correlation import rank_test, resampled_correlations, unit_ranks
from interp.statistics.intervals import normal_interval
from interp.statistics.resampling import bootstrap_weights, shuffles
from interp.table import Table

VALUES = Need("v")
FEW = 200


@dataclass(frozen=True)
class ValueLength(Probe):
    """Spearman's ρ of ‖v‖ (heads concatenated) with the model's next-token entropy, layer by layer.

    `n_permutations` of the null, which gives every prompt the entropies of another one; `n_bootstrap` resamples of
    whole prompts for the interval.
    """

    n_permutations: int = 500
    n_bootstrap: int = 500
    seed: int = 0

    name: ClassVar[str] = "value_length"
    question: ClassVar[str] = "Are values longer, or shorter, where the model is unsure?"

    @property
    def needs(self) -> tuple[Need, ...]:
        return (VALUES,)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        entropy, prompt = base.rows["next_entropy_bits"], base.rows["prompt"]
        length = np.linalg.norm(base[VALUES].astype(np.float64), axis=(2, 3))  # layer, row
        test = rank_test(length, entropy, shuffles(prompt, self.n_permutations, rng))
        weights = bootstrap_weights(prompt, np.zeros(len(prompt), dtype=np.int64), self.n_bootstrap, rng)
        resampled = resampled_correlations(unit_ranks(length), unit_ranks(entropy[None])[0], weights)
        intervals = [normal_interval(r, each) for r, each in zip(test.rho, resampled, strict=True)]
        bands = np.quantile(test.permuted, 0.95, axis=0)  # of |ρ|: the band is symmetric
        n = len(np.unique(prompt))
        return Findings(
            probe=self.name,
            scalars={"correlation": self._headline(test.rho[-1], test.p[-1], intervals[-1], bands[-1], n)},
            tables={"by_layer": _by_layer(test.rho, test.p, intervals, bands)},
            notes=("Layers were looked at together: p is from the largest |ρ| of all under the same permutations.",),
            headline=("correlation",),
        )

    def _headline(self, rho: float, p: float, interval: tuple[float, float] | None, band: float, n: int) -> Scalar:
        known = not np.isnan(rho)
        return Scalar(
            value=float(rho),
            unit="1",
            interval=interval if known else None,
            interval_method="bootstrap over prompts, Fisher z scale" if known and interval else "",
            interval_reason="" if known and interval else "the length or the entropy never varies",
            null=Null("entropies exchanged between prompts", 0.0, (-float(band), float(band))) if known else None,
            null_reason="" if known else "the length or the entropy never varies",
            p=float(p) if known else None,
            p_over="layers" if known else "",
            n=n,
            underpowered=n < FEW,
            meaning="rank correlation of the length of the last layer's values with next-token entropy",
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        import plotly.graph_objects as go

        t = findings.tables["by_layer"]
        plot = go.Figure()
        edges = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        plot.add_scatter(x=t["layer"], y=t["rho_null_low"], **edges)
        plot.add_scatter(x=t["layer"], y=t["rho_null_high"], **edges | {"fill": "tonexty", "showlegend": True},
                         fillcolor=faded(NULL, 0.3), name="null")  # fmt: skip
        errors = {"symmetric": False, "array": t["rho_high"] - t["rho"], "arrayminus": t["rho"] - t["rho_low"]}
        plot.add_scatter(x=t["layer"], y=t["rho"], error_y=errors, mode="lines+markers", name="ρ")
        plot.update_layout(xaxis_title="layer", yaxis_title="ρ of ‖v‖ and entropy", yaxis_range=[-1, 1])
        reading = "Outside the grey band the length of values follows entropy more than exchanged entropies do."
        return (Figure("by_layer", "Length of values and entropy", reading, plot, "by_layer"),)


def _by_layer(rho: np.ndarray, p: np.ndarray, intervals: list, bands: np.ndarray) -> Table:
    rows = [
        {
            "layer": layer, "rho": float(rho[layer]), "rho_low": low, "rho_high": high,
            "rho_null_low": -float(bands[layer]), "rho_null_high": float(bands[layer]), "p": float(p[layer]),
        }
        for layer, (low, high) in enumerate(each or (np.nan, np.nan) for each in intervals)
    ]  # fmt: skip
    units = {"layer": "layer", "p": "probability"} | dict.fromkeys(
        ("rho", "rho_low", "rho_high", "rho_null_low", "rho_null_high"), "1"
    )
    return Table.from_rows(rows, units, "Spearman's ρ of the length of values with next-token entropy.")
