"""Dynamics: how the geometry forms over a training, and whether attention settles before the error does.

Read at checkpoints, each on the same tokens (`read`); the run's own model is the end of the training.

    frame       attention rows against the end's: total variation, Jensen-Shannon; drift of W_QK (`frame`)
    values      distance of the values from the end's; PC shares, participation ratio, and the curve of the states in
                order of their entropy (`entropy_order`)
    error       of the prediction against the exact posterior, or the loss on the text; distance of the output from the
                end's
    exchange    error of the end with a checkpoint's attention patterns, and of the checkpoint with the end's

The exchange tests whether attention is learned first: it is where the end with the patterns of step t is nearly the
end, and the network of t with the final patterns nearly as wrong as without them.

The dissociation index is the step at which the frame has settled over that at which the error has, below 1 where the
frame came first (`training_curves`); it describes distances and has no test. An error in bits falls as the square of a
distance and so settles earlier; the index against the output's total variation is on the scale of the frame.

Source: Paper II (arXiv 2512.22473) on checkpoints, which shows maps and gives no number: lengths, index and null
are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import AnalysisCost, Probe, Readout, Sentences
from interp.statistics.quantities import Quantities
from interp.statistics.units import Units

from ..measures.field_checks import check_fields, refused
from ..measures.sample_sizes import MIN_CLOUD
from .exchange import exchange_numbers, exchange_table, unexchanged
from .figures import dynamics_figures
from .indices import indices, undefined_index
from .quantities import QUANTITIES
from .read import EXCHANGED, NEEDS, errors, read_checkpoint, read_exchanged
from .training import Training, points_table, step_layer_table, step_table


@dataclass(frozen=True)
class Dynamics(Probe):
    """The curve of a training: frame, values and error at every checkpoint, and what settles first.

    `layer`: whose values are followed. `epsilon`: the fraction of the first distance within which a curve has settled.
    `n_permutations`: permutations of the nulls; `n_bootstrap`: resamples of the prompts. `exchange`: whether attention
    patterns are exchanged with the end, which takes two models in memory and about four passes per checkpoint over at
    most `n_exchanged` prompts.
    """

    layer: int = -1
    epsilon: float = 0.1
    n_permutations: int = 200
    n_bootstrap: int = 500
    seed: int = 0
    exchange: bool = True
    n_exchanged: int = 200

    name: ClassVar[str] = "dynamics"
    least_clusters: ClassVar[int] = MIN_CLOUD
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "Does the frame of attention settle before precision does, over the training?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            120, "In training, is attention in place before the rest of the network?", ("exchange_lead",),
            "The early network with the final attention patterns errs by {value} more than the final network with the "
            "early patterns.",
            "The early network with the final attention patterns errs as much as the final network with the early "
            "patterns.",
            "The early network with the final attention patterns errs by {size} less than the final network with the "
            "early patterns.",
        ),
    )  # fmt: skip
    observational: ClassVar[bool] = False
    follows_checkpoints: ClassVar[bool] = True
    cost: ClassVar[AnalysisCost] = AnalysisCost(row_seconds=3e-4)

    @property
    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    @property
    def exchange_needs(self) -> tuple[Need, ...]:
        return EXCHANGED if self.exchange else ()

    def read_exchanged(self, with_patterns: Capture, of_network: Capture, prompts: np.ndarray) -> Readout:
        return read_exchanged(with_patterns, of_network, prompts)

    def read_checkpoint(self, capture: Capture, final: Capture) -> Readout:
        self.refuse_fields(final.model.n_layers)
        return read_checkpoint(capture, final, self.layer, self.n_permutations, self.seed)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        unit = base.prompts.unit
        if len(under) < 2:
            numbers = undefined_index("the model was not read at checkpoints of its training", unit)
            return QUANTITIES.findings(self.name, QUANTITIES.scalars(numbers), {})
        units = Units.of(base.rows, unit, self.n_bootstrap, np.random.default_rng([self.seed, 1]))
        training = Training.of(under, errors(base, base), units, self.layer)
        exchange = training.exchange
        if exchange is None:
            numbers = unexchanged("attention patterns were not exchanged (exchange = False)", units)
        else:
            numbers = exchange_numbers(exchange, self.n_permutations, np.random.default_rng([self.seed, 2]))
        tables = {} if exchange is None else {"exchange": exchange_table(exchange, training.exchanged_error)}
        tables |= {
            "by_step": step_table(training), "by_step_layer": step_layer_table(training),
            "points": points_table(training, base),
        }  # fmt: skip
        return QUANTITIES.findings(
            self.name, QUANTITIES.scalars(numbers | indices(training, self.epsilon)), tables,
            arrays={"epsilon": np.array(self.epsilon)}, notes=self._notes(training, base),
        )  # fmt: skip

    figures = staticmethod(dynamics_figures)

    def _notes(self, training: Training, base: Capture) -> tuple[str, ...]:
        n = training.units.n
        steps = ", ".join(map(str, training.steps.tolist()))
        notes = [
            f"Checkpoints at the steps {steps}; {n} {training.units.name}s; values of layer {training.layer}. A curve "
            f"has settled where it stays within {self.epsilon:g} of its first distance from the end.",
            "Indices of settling describe distances: no p. What patterns do is asked by the exchange, whose p is by "
            "flipping the signs of paired differences, and speaks for this training alone.",
            "Intervals are over prompts, checkpoints held fixed: between two checkpoints a step is interpolated along "
            "log(1 + step). Other trainings differ by more: compare seeds.",
            "Distances are from the last checkpoint, so that a curve which still moves there seems to settle last.",
        ]
        if base.prompts.is_text:
            notes.append("No exact posterior belongs to these texts: the error is the surprise at the text itself.")
        return tuple(notes)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_permutations": 19, "n_bootstrap": 20}, n_layers, "layer")
        if not 0 < self.epsilon < 1:
            fix = "Choose a number between 0 and 1, such as 0.1."
            raise refused(self, "epsilon", "it is a fraction of the first distance", fix)
