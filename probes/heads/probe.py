"""Heads and layers: which of them does the model need, and do they stand in for one another?

Every head's output z is replaced, before W_O mixes the heads, by zero, by its mean, or by another prompt's (`how`);
every layer is bypassed, and its attention or its feed-forward adds nothing. What that costs is measured in bits, prompt
by prompt (`harm`): distance from the exact posterior where it is known, change of the
prediction and loss on ordinary text. Zero takes a model where it has never been; resampling keeps every head's output
in its own distribution; their disagreement says how much of an effect is the shock.

Heads repair one another: a head without effect of its own may be needed once another is gone. So random sets of heads
are removed beside the sum of their members' effects, and the most harmful ones together, ranked on one half of the
prompts and judged on the other. Formulas, nulls and failure modes are in docs/reference/probes.

Source: Paper I (arXiv 2512.22471), head ablation and layer bypass on wind tunnels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import PromptError, UsageError
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Condition, Figure, Planned, Probe, Readout
from interp.table import Table

from ..measures.answers import N_CONDITIONS
from ..measures.field_checks import refuse_too_few, refuse_unknown
from ..measures.harm import (
    CHANGED,
    OUTCOME,
    SIGNED,
    SIZE,
    Scores,
    choose_prompts,
    chosen_measure,
    default_n_prompts,
    error_of,
    measures_of,
    needs_of,
    needs_where,
    other_units,
    read_scores,
    units_of,
)
from ..measures.prompt_effects import top_head
from ..measures.sign_flips import random_signs
from .edits import UNEDITED, How, Named, Plan
from .scalars import (
    baseline_scalar,
    bypass_scalar,
    compounding_scalar,
    late_scalar,
    nothing_tried,
    top_effect_scalar,
    top_head_scalars,
)
from .tables import Signs, by_head_table, by_layer_table, head_effects, sets_table

SULA = "sula: "
"""What the names of conditions on SULA prompts begin with."""

_LEAST = {"n_prompts": 2, "n_random": 2, "n_sets": 1, "n_donors": 1, "n_permutations": 19, "n_bootstrap": 20}
_HEADLINE = (
    "top_head_ratio", "top_head_share", "top_head_effect", "bypass_ratio_min", "late_attention_off", "compounding",
)  # fmt: skip


@dataclass(frozen=True)
class Heads(Probe):
    """Harm of ablating heads, layers and sets of heads, on `n_prompts` prompts (none: 200 sequences or 40 texts).

    `how`: of zero, mean and resample; the first is primary. `measure` is what heads are ranked by.
    `n_donors` draws of the other prompts for resampling, `n_random` subspaces a layer, `n_sets` random sets of each
    size. `n_sula`: SULA problems on which a language model's calibration is read under every edit too.
    """

    how: tuple[How, ...] = ("zero", "mean", "resample")
    measure: Literal["auto", "posterior_kl", "entropy_error", "next_kl", "loss"] = "auto"
    n_prompts: int | None = None
    n_random: int = 39
    n_sets: int = 10
    n_donors: int = 3
    n_sula: int = 0
    n_permutations: int = 1000
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "heads"
    question: ClassVar[str] = "Which heads and layers does the model need, and do heads stand in for one another?"
    observational: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        return (OUTCOME,)

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """The unedited model, single heads, layers, random subspaces and sets; on SULA heads and layers again."""
        self._check_fields()
        chosen_measure(self.measure, base.prompts)
        plan, chosen = self._plan(base), self._chosen(base)
        self._refuse_lonely(chosen)
        needs = needs_of(base.prompts)
        edits: list[Named] = [(UNEDITED, ()), *plan.layers()]
        edits += [one for how in plan.how for one in plan.heads(how)]
        edits += plan.controls()
        yield from (Condition(name, edit, needs, read_scores, chosen) for name, edit in edits)
        if self.n_sula:
            yield from self._on_sula(base, plan)

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """The same edits, counted; random sets and those of the most harmful heads are taken to start at layer 0."""
        self._check_fields()
        plan = Plan.of(info, self.how, self.n_donors, self.n_random, self.n_sets, self.seed)
        n = min(n_prompts, default_n_prompts(not is_text) if self.n_prompts is None else self.n_prompts)
        yield from (Planned(count, n, layer, needs_where(not is_text)) for layer, count in plan.counted().items())
        if self.n_sula:
            each = len(plan.parts) + plan.n_heads
            for layer in range(info.n_layers):
                is_late = bool(plan.n_heads) and layer == plan.late_layers[0]
                yield Planned(each + is_late, self.n_sula, layer, needs_where(True), "sula")

    def further_conditions(self, base: Capture, under: Mapping[str, Readout]) -> Iterable[Condition]:
        """The most harmful heads of one half of the prompts, removed together."""
        plan, chosen = self._plan(base), self._chosen(base)
        if not plan.set_sizes:
            return
        scores = self._scores(base, under)
        effects = head_effects(scores, plan, plan.how[0], chosen_measure(self.measure, base.prompts))
        ranked = effects[~self._judged(scores)]
        order = np.argsort(-np.nan_to_num(ranked).mean(axis=0), kind="stable")
        needs = needs_of(base.prompts)
        for name, edit in plan.cumulative(order):
            yield Condition(name, edit, needs, read_scores, chosen)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self._check_fields()
        if UNEDITED not in under:
            return Findings(self.name, nothing_tried(), headline=("top_head_ratio",))
        plan, scores = self._plan(base), self._scores(base, under)
        primary, error = chosen_measure(self.measure, base.prompts), error_of(base.prompts)
        measures = measures_of(base.prompts)
        signs = self._signs(scores)
        scalars = {measure: baseline_scalar(scores, measure) for measure in measures if measure in SIGNED}
        scalars |= self._layers(scores, plan, measures, error, signs)
        tables = {"by_layer": by_layer_table(scores, plan, measures, error, signs)}
        notes = self._notes(base, plan, scores, primary)
        if plan.n_all > 1:
            scalars |= self._heads(scores, plan, primary, error, signs)
            tables["by_head"] = by_head_table(scores, plan, measures, primary, signs)
        if plan.set_sizes:
            scalars["compounding"] = compounding_scalar(scores, plan, primary, signs)
            tables["sets"] = sets_table(scores, plan, primary, self._judged(scores), signs)
        if SULA + UNEDITED in under:
            of_sula, more = self._sula_findings(base, plan, under)
            scalars, tables = scalars | of_sula, tables | more
        return Findings(
            self.name, scalars, tables, notes=notes, headline=tuple(name for name in _HEADLINE if name in scalars)
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import heads_figures

        return heads_figures(findings)

    def _layers(
        self, scores: Scores, plan: Plan, measures: Sequence[str], error: str, signs: Signs
    ) -> dict[str, Scalar]:
        """Numbers of the paper's measure, and under their own names of the others that have a baseline."""
        found = {}
        for measure in (m for m in measures if m in SIGNED):
            suffix = "" if measure == error else f"_{measure}"
            found[f"bypass_ratio_min{suffix}"] = bypass_scalar(scores, plan, measure, signs)
            if plan.n_heads:
                found[f"late_attention_off{suffix}"] = late_scalar(scores, plan, measure, signs)
        return found

    def _heads(self, scores: Scores, plan: Plan, primary: str, error: str, signs: Signs) -> dict[str, Scalar]:
        """The primary ablation by both measures, and the other ablations by the primary one."""
        found: dict[str, Scalar] = {}
        asked: list[tuple[How, str, str]] = [
            (how, primary, "" if i == 0 else f"_{how}") for i, how in enumerate(plan.how)
        ]
        if error != primary:
            asked.append((plan.how[0], error, f"_{error}"))
        for how, measure, suffix in asked:
            effects = head_effects(scores, plan, how, measure)
            top = top_head(effects, scores.units, signs)
            named = top_head_scalars(scores, plan, top, how, measure)
            found |= {f"top_head_{name}{suffix}": scalar for name, scalar in named.items()}
            if not suffix:
                found["top_head_effect"] = top_effect_scalar(scores, plan, top, effects, measure)
        return found

    def _on_sula(self, base: Capture, plan: Plan) -> Iterable[Condition]:
        if base.prompts.unit == "sequence":
            raise UsageError(
                asked=f"heads.n_sula = {self.n_sula} on {base.model.name}",
                found="a wind tunnel reads no texts, and is scored by its own exact posterior",
                fix="Leave n_sula out.",
            )
        edits: list[Named] = [(UNEDITED, ()), *plan.layers(), *(plan.heads(plan.how[0], 1) if plan.n_all else ())]
        needs, kept = (OUTCOME, CHANGED, SIZE), np.arange(self.n_sula)
        n_pool = self.n_sula * N_CONDITIONS
        for name, edit in edits:
            yield Condition(SULA + name, edit, needs, read_scores, kept, on="sula", n_pool=n_pool)

    def _sula_findings(
        self, base: Capture, plan: Plan, under: Mapping[str, Readout]
    ) -> tuple[dict[str, Scalar], dict[str, Table]]:
        rng = np.random.default_rng([self.seed, 7])
        units = other_units(under[SULA + UNEDITED], "problem", self.n_bootstrap, rng)
        scores = Scores(under, SULA + UNEDITED, units)
        signs, measures = self._signs(scores), ("posterior_kl", "entropy_error", "next_kl")
        scalars = {f"sula_{measure}": baseline_scalar(scores, measure) for measure in measures[:2]}
        tables = {"sula_by_layer": by_layer_table(scores, plan, measures, "entropy_error", signs, SULA)}
        if plan.n_all:
            tables["sula_by_head"] = by_head_table(scores, plan, measures, measures[0], signs, SULA)
        return scalars, tables

    def _plan(self, base: Capture) -> Plan:
        return Plan.of(base.model, self.how, self.n_donors, self.n_random, self.n_sets, self.seed)

    def _chosen(self, base: Capture) -> np.ndarray:
        return choose_prompts(base, self.n_prompts, self.seed)

    def _scores(self, base: Capture, under: Mapping[str, Readout]) -> Scores:
        rng = np.random.default_rng([self.seed, 4])
        return Scores(under, UNEDITED, units_of(base, self._chosen(base), self.n_bootstrap, rng))

    def _signs(self, scores: Scores) -> Signs:
        rng = np.random.default_rng([self.seed, 5])
        return random_signs(self.n_permutations, scores.units.n, rng)

    def _judged(self, scores: Scores) -> np.ndarray:
        """A random half of the units; heads are ranked on the other."""
        judged = np.zeros(scores.units.n, dtype=bool)
        judged[np.random.default_rng([self.seed, 8]).permutation(scores.units.n)[: scores.units.n // 2]] = True
        return judged

    def _check_fields(self) -> None:
        refuse_unknown(self)
        refuse_too_few(self, _LEAST, "too few for what is made of them")
        if self.n_sula < 0:
            raise UsageError(asked=f"heads.n_sula = {self.n_sula}", found="it counts problems", fix="Choose 0 or more.")

    def _refuse_lonely(self, chosen: np.ndarray) -> None:
        if len(chosen) < 2:
            raise PromptError(
                asked="the effect of ablations over prompts",
                found=f"there is {len(chosen)} prompt to try them on",
                fix="Give at least 2; the statistics want twenty or more.",
            )

    def _notes(self, base: Capture, plan: Plan, scores: Scores, primary: str) -> tuple[str, ...]:
        n_all = len(np.unique(base.rows["prompt"]))
        notes = [
            f"Edits were tried on {scores.units.n} of {n_all} {scores.units.name}s, at all their positions.",
            f"Primary: {plan.how[0]} ablation, measured by {primary}; every other ablation, measure, head and layer is "
            "exploratory. An interval of the most harmful head holds the choice of it fixed.",
        ]
        if not plan.n_heads:
            return (*notes, "This model has no attention heads: its layers alone were tried.")
        if base.model.n_kv_heads < base.model.n_heads:
            notes.append(
                f"{base.model.n_heads} query heads share {base.model.n_kv_heads} KV heads: an ablation acts on one "
                "query head's output, and leaves the values that it shares as they are."
            )
        if plan.set_sizes:
            notes.append(
                f"Sets: {plan.n_sets} at random of each size, the same for all prompts. top: ranked on "
                f"{int((~self._judged(scores)).sum())} {scores.units.name}s, judged on the others."
            )
        if "resample" in plan.how:
            notes.append(
                f"Resampling: {plan.n_donors} draws of another {scores.units.name} for each, the same one for all "
                "heads; effects are means over draws."
            )
        return tuple(notes)
