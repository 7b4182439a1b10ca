"""Is the length of the values a gauge of uncertainty? A whole probe in one file, of a package of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interp import Capture, Figure, Findings, Need, Probe, Quantities, Quantity, Readout, Sentences
from interp.errors import UsageError
from interp.plotting import Chart
from interp.statistics.correlation import rank_test, resampled_correlations, unit_ranks
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import normal_interval
from interp.statistics.resampling import bootstrap_weights, shuffles

VALUES = Need("v")
FEW = 200
QUANTITIES = Quantities({
    "correlation": Quantity(
        "1",
        "rank correlation of the length of the last layer's values with next-token entropy",
        null="entropies permuted between prompts",
        method="bootstrap over prompts, Fisher z scale",
        asks="either",
        p_over="layers",
        is_headline=True,
    ),
})  # fmt: skip


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
    quantities: ClassVar[Quantities] = QUANTITIES
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            200,
            "Are the values of {model} longer where it is unsure?",
            ("correlation",),
            yes="Their length has rank correlation {value} with next-token entropy.",
            no="Their length does not follow next-token entropy beyond chance.",
            opposite="They are shorter there: the rank correlation is {value}.",
        ),
    )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (VALUES,)

    def refuse_fields(self, n_layers: int | None) -> None:
        if min(self.n_permutations, self.n_bootstrap) < 19:
            found = "5 % of fewer than 19 permutations or resamples is less than one"
            raise UsageError(asked="value_length", found=found, fix="Set n_permutations and n_bootstrap to 19 or more.")

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        rng = np.random.default_rng(self.seed)
        entropy, prompt = base.rows["next_entropy_bits"], base.rows["prompt"]
        length = np.linalg.norm(base[VALUES].astype(np.float64), axis=(2, 3))  # layer, row
        test = rank_test(length, entropy, shuffles(prompt, self.n_permutations, rng))
        weights = bootstrap_weights(prompt, np.zeros(len(prompt), dtype=np.int64), self.n_bootstrap, rng)
        resampled = resampled_correlations(unit_ranks(length), unit_ranks(entropy[None])[0], weights)
        intervals = [normal_interval(r, each) for r, each in zip(test.rho, resampled, strict=True)]
        widest = np.quantile(test.permuted, 0.95, axis=0)  # of |ρ|: the band is symmetric
        n = len(np.unique(prompt))
        found = Estimates(
            test.rho,
            interval=np.array([each or (np.nan, np.nan) for each in intervals]).T,
            null=np.stack([0 * widest, -widest, widest]),
            p=test.p,
            n_draws=self.n_permutations,
            about={"n": n, "underpowered": n < FEW, "enough": FEW},
        ).because("the length or the entropy never varies")
        caption = "Spearman's ρ of the length of values with next-token entropy."
        return QUANTITIES.findings(
            self.name,
            {"correlation": QUANTITIES.scalar("correlation", found, len(test.rho) - 1)},
            {"by_layer": QUANTITIES.table({"layer": np.arange(len(test.rho)), "correlation": found}, caption)},
            notes=("Layers were looked at together: p is from the largest |ρ| of all under the same permutations.",),
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        chart = Chart(findings.tables["by_layer"], "layer", "layer", "ρ of ‖v‖ and entropy")
        chart.null_band("correlation")
        chart.curve("correlation", "ρ")
        reading = "Outside the null band, the length of values follows entropy more than permuted entropies do."
        return (Figure("by_layer", "Length of values and entropy", reading, chart.plot, "by_layer"),)
