"""Evidence about a latent label: do answers and values follow the exact posterior as examples come in?

Prompts of `sula` carry the posterior of an ideal reader, and so do the sequences of a wind tunnel. Two questions:

    calibration  is the model's distribution over the outcomes the exact one (`calibration`)?
    movement     does a coordinate of the values move with the evidence, along an axis fitted to other problems
                 (`movement`)? The axes are PC1, which Paper III calls the entropy axis, and ridge on H_Bayes

The headline is about the condition `main`, where length grows with k; movement with k in prompts of equal length
(`padded`) and movement with H_Bayes among prompts of equal k are reported too. Formulas, nulls and failure modes are in
docs/reference/probes.

Source: Paper III (arXiv 2512.23752), sections 4.3 and 5.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.errors import PromptError
from interp.findings import Findings
from interp.need import Need
from interp.probe import AnalysisCost, Probe, Readout, Sentences
from interp.prompt import PromptSet
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.resampling import bootstrap_weights

from ..measures.answers import Answers
from ..measures.calibration import calibration
from ..measures.cloud import Cloud, own_number
from ..measures.field_checks import check_fields
from ..measures.permutations import permutations_within
from ..measures.sample_sizes import FEW_HALVED, MIN_HALVES, with_least
from .figures import sula_figures
from .movement import AXES, N_HALF_SPLITS, Halved, fit_axes, movement_of_halves
from .quantities import AFTER_FIRST, MOVEMENTS, QUANTITIES
from .tables import (
    along_table,
    answers_table,
    by_condition_table,
    movement_table,
    trajectory_table,
)

Tests = dict[tuple[str, str], dict[str, Estimates]]
"""Correlations by condition, and whether rows without evidence are in."""

_STILL = "the coordinate never varies here, or what it is compared with does not"
_BAYES = (0.8, 1.25)
"""What counts as following Bayes' rule, whose slope and skill are 1."""


@dataclass(frozen=True)
class Sula(Probe):
    """Calibration against an exact posterior, and movement of values as evidence comes in.

    `layer` and `axis` (`pc1` or `ridge`) name the primary coordinate; all layers and both axes are in the tables.
    """

    layer: int = -1
    axis: Literal["pc1", "ridge"] = "pc1"
    n_permutations: int = 500
    n_bootstrap: int = 500
    seed: int = 0

    name: ClassVar[str] = "sula"
    least_clusters: ClassVar[int] = MIN_HALVES
    question: ClassVar[str] = "Do answers and values follow the exact posterior as evidence accumulates?"
    own_prompts: ClassVar[str | None] = "sula"
    needs_posterior: ClassVar[bool] = True
    quantities: ClassVar[Quantities] = QUANTITIES
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            40, "Do the answers of {model} follow the evidence?", ("slope",),
            "Its log-odds change by {slope} bits per bit of evidence (Bayes' rule: 1; evidence ignored: 0). The "
            "possible answers together have a probability of {outcome_mass}, other tokens the rest.",
            "Its log-odds follow the evidence no better than that of other problems.",
            "Its log-odds change against the evidence, by {slope} bits per bit.",
            full=_BAYES,
        ),
        Sentences(
            40, "Do the answers of {model} follow the evidence?", ("kl_skill",),
            "On a scale from the best constant answer (0) to Bayes' rule (1), its answers reach {kl_skill} (by KL).",
            "Its answers are no closer to the exact posterior than to those of other sequences.",
            "Its answers are further from the exact posterior than from those of other sequences.",
            full=_BAYES,
        ),
    )  # fmt: skip
    cost: ClassVar[AnalysisCost] = AnalysisCost(row_seconds=4.6e-4)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("v"), Need("outcome_log_prob"))

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        values, outcomes = self.needs
        answers = Answers.of(base, outcomes)
        cloud = Cloud.of(base, values)
        layer = cloud.layer_index(self.layer)
        fitting, shown = answers.condition == answers.main, answers.evidence > 0
        _refuse_few(answers.where(fitting).n_clusters, answers.resampled)
        n_draws = self.n_permutations, self.n_bootstrap
        calibrated: dict[str, Mapping[str, Estimates]] = {}
        for i, condition in enumerate(answers.conditions):
            mine = answers.where(answers.condition == condition)
            rng = self._rng(1, i)
            orders = permutations_within(mine.stratum, mine.cluster, self.n_permutations, rng)
            # resampled within strata: how many prompts there are of each k is design, not chance
            weights = bootstrap_weights(mine.cluster, mine.stratum, self.n_bootstrap, rng)
            calibrated[condition] = calibration(mine, orders, weights, base.model.vocab_size)
        firsts = {"in": np.ones_like(shown)} | ({"out": shown} if shown.any() and not shown.all() else {})
        halved = {
            first: Halved.of(cloud.points, answers, kept & fitting, self._rng(2)) for first, kept in firsts.items()
        }
        tests = self._tests(firsts, halved, answers)
        found = {**calibrated[answers.main], **self._movements(tests, answers, layer, cloud.n_layers)}
        quantities = QUANTITIES.filled(unit=answers.resampled, amount=answers.evidence_name.replace("_", " "))
        scalars = quantities.scalars(found)
        held_out = halved["in"].held_out.sum(axis=0) > 0
        along = dict(zip(AXES, halved["in"].mean[:, layer, held_out], strict=True))
        axes = zip(AXES, fit_axes(cloud.points, answers, fitting), strict=True)
        return quantities.findings(
            self.name,
            scalars,
            {
                "by_condition": by_condition_table(answers, calibrated),
                "along_evidence": along_table(answers, self.n_bootstrap, self._rng(4)),
                "trajectories": trajectory_table(along, answers.where(held_out), *n_draws, self._rng(3)),
                "movement": movement_table(tests),
                "answers": answers_table(answers, base),
            },
            arrays={
                **{f"v.{axis}.axis": of_axis for axis, of_axis in axes},
                "v.mean": cloud.points[:, fitting].mean(axis=1, dtype=np.float64),
            },
            notes=self._notes(answers, layer, base),
            headline=tuple(
                n for n, q in quantities.items() if q.is_headline and n in found and np.isfinite(scalars[n].value)
            ),
        )

    def refuse(self, prompts: PromptSet) -> None:
        problems = {prompt.columns.get("problem", i) for i, prompt in enumerate(prompts.prompts)}
        _refuse_few(len(problems), "problem" if "problem" in prompts.units else prompts.unit)

    figures = staticmethod(sula_figures)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_permutations": 19, "n_bootstrap": 20}, n_layers, "layer")

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])

    def _tests(self, firsts: Mapping[str, np.ndarray], halved: Mapping[str, Halved], answers: Answers) -> Tests:
        """The tests of every condition, with and without rows that show no evidence."""
        tests: Tests = {}
        for (first, kept), condition in product(firsts.items(), answers.conditions):
            rows = kept & (answers.condition == condition)
            mine = answers.where(rows)
            if mine.n_clusters < MIN_HALVES or not len(halved[first].held_out):
                continue
            rng = self._rng(6, 2 * len(tests))
            found = movement_of_halves(halved[first], answers, rows, self.n_permutations, rng)
            about = with_least(mine.counted, mine.n_clusters, FEW_HALVED)
            tests[condition, first] = {n: replace(of, why=_STILL, about=about) for n, of in found.items()}
        return tests

    def _movements(self, tests: Tests, answers: Answers, layer: int, n_layers: int) -> dict[str, Estimates]:
        """The numbers at the primary layer and axis."""
        place = AXES.index(self.axis) * n_layers + layer
        moved = {}
        for name, (condition, variable, _) in MOVEMENTS.items():
            for first, suffix in (("in", ""), ("out", AFTER_FIRST)):
                test = tests.get((condition or answers.main, first))
                if test is not None:
                    moved[name + suffix] = test[variable].at([place])
        return moved

    def _notes(self, answers: Answers, layer: int, base: Capture) -> tuple[str, ...]:
        along, own = answers.evidence_name.replace("_", " "), own_number("v", layer, base.model)
        notes = [
            f"Headline: condition {answers.main!r} of {len(answers.conditions)}; values at layer {own} along "
            f"{self.axis}; every other condition, layer and axis is exploratory.",
            f"Axes were fitted to a random half of the {answers.resampled}s (condition {answers.main!r}) and judged by "
            f"the others, in {N_HALF_SPLITS} half splits; they are turned so that the exact entropy rises along them.",
            f"Evidence is counted by the column {along!r}. Calibration is of the distribution among the outcomes "
            "alone; outcome_mass says how much of the whole vocabulary that is.",
        ]
        if np.ptp(base.rows["length"]) > 0 and answers.one_row_each:
            notes.append("Prompts differ in length: entropy_movement_within and _same_length hold it fixed.")
        if answers.noise is not None and "shuffled" in answers.conditions:
            notes.append(
                "Shuffled labels: the posterior is that of a reader who trusts them; the noise reader's columns hold "
                "that of one who does not (1 bit)."
            )
        return tuple(notes)


def _refuse_few(n: int, unit: str) -> None:
    """Raise `PromptError` for too few problems (sequences) to split into halves."""
    if n < MIN_HALVES:
        raise PromptError(
            asked=f"an axis fitted on one half of {n} {unit}s and tested on the other",
            found=f"fewer than {MIN_HALVES} make no halves",
            fix="Give more prompts (--n-pool): one problem is several of them, and statistics want two hundred.",
        )
