"""Heads and layers: which of them does the model need, and do heads compensate for one another?

Every head's output z is replaced, before W_O mixes the heads, by zero, by its mean, or by another prompt's (`how`);
every layer is bypassed, and its attention or feed-forward block switched off. The harm is measured in bits, prompt by
prompt (`harm`). Zero is far from any activation of the model, while resampling keeps each head's distribution.

A head without any effect may be needed once another is gone. So random sets of heads are removed and compared with the
sum of their members' effects, and the most harmful heads together, ranked on one half of the prompts and tested on the
other. In a model of many heads, single ones are first screened by gradients (`choice`). Formulas, nulls and failure
modes are in docs/reference/probes.

Source: Paper I (arXiv 2512.22471), head ablation and layer bypass on wind tunnels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import PromptError
from interp.findings import Findings
from interp.need import Need
from interp.probe import Condition, Planned, Probe, Readout, Screen, Sentences
from interp.statistics.quantities import Quantities
from interp.statistics.units import mean_of_units

from ..measures.field_checks import check_fields, refused
from ..measures.harm import (
    NOTHING_TRIED,
    OUTCOME,
    SIGNED,
    Scores,
    choose_prompts,
    chosen_measure,
    measures_of,
    n_tried,
    needs_where,
    read_scores,
    units_of,
)
from .choice import Choice
from .edits import UNEDITED, How, Named, Plan
from .estimates import (
    by_draw,
    by_head_table,
    by_layer_table,
    bypass,
    compounding,
    head_estimates,
    late_attention,
    sets_table,
)
from .figures import heads_figures
from .quantities import QUANTITIES

_LEAST = {
    "n_prompts": 2,
    "n_random": 2,
    "n_sets": 1,
    "n_donors": 1,
    "n_screened": 2,
    "n_draws": 1,
    "n_permutations": 19,
    "n_bootstrap": 20,
}


@dataclass(frozen=True)
class Heads(Probe):
    """Harm of ablating heads, layers and sets of heads, on `n_prompts` prompts (none: 200 sequences or 40 texts).

    `how`: of zero, mean and resample; the first is primary. `measure` is what heads are ranked by.
    `n_donors` draws of the other prompts for resampling, `n_random` subspaces a layer, `n_sets` random sets of each
    size. `screen` (`auto`: where that saves more than half of the edits): the `n_screened` heads that it ranks
    highest are ablated, those of the two layers that it is most wrong about, and `n_sampled` random ones by the primary
    ablation; it draws `n_draws` outcomes for each row.
    """

    how: tuple[How, ...] = ("zero", "mean", "resample")
    measure: Literal["auto", "posterior_kl", "entropy_error", "next_kl", "loss"] = "auto"
    n_prompts: int | None = None
    n_random: int = 39
    n_sets: int = 10
    n_donors: int = 3
    screen: Literal["auto", "on", "off"] = "auto"
    n_screened: int = 12
    n_sampled: int = 40
    n_draws: int = 8
    n_permutations: int = 1000
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "heads"
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "Which heads and layers does the model need, and do heads compensate for one another?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            100, "Does one head matter far more than the others?", ("top_head_ratio",),
            "Without one head the error rises by {top_head_effect}, {value} times as much as without the next one. The "
            "most important is {detail}.",
            "Without one head the error rises by {top_head_effect}, {value} times as much as without the next one, no "
            "more than by chance. The most important is {detail}.",
        ),
    )  # fmt: skip
    observational: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        return (OUTCOME,)

    def screening(self, base: Capture) -> Screen | None:
        """All heads by every kind of ablation, if a screen chooses the heads."""
        plan = self._plan(base.model)
        if not plan.is_screened:
            return None
        heads = range(plan.n_all)
        edits = {plan.screened(how, draw): plan.ablated(how, heads, draw) for how, draw in plan.kinds}
        measure: Any = chosen_measure(self.measure, base.prompts)
        return Screen(edits, measure, self.n_draws, self._chosen(base), self.seed)

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """The unedited model, layers and sets; single heads and random subspaces where no screen chooses them."""
        self.refuse_fields(base.model.n_layers)
        chosen_measure(self.measure, base.prompts)
        plan, chosen = self._plan(base.model), self._chosen(base)
        if len(chosen) < 2:
            raise PromptError(
                asked="the effect of ablations over prompts",
                found=f"there is {len(chosen)} prompt to try them on",
                fix="Give at least 2; the statistics want twenty or more.",
            )
        edits: list[Named] = [(UNEDITED, ()), *plan.layers()]
        if not plan.is_screened:
            edits += [one for how in plan.how for one in plan.heads(how, range(plan.n_all))]
            edits += plan.subspaces(range(plan.n_layers))
        edits += plan.random_sets()
        yield from self._conditions(base, edits)

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """The same edits, counted; random sets and those of the most harmful heads are taken to start at layer 0.

        A pass back through the model takes as long as one forward.
        """
        self.refuse_fields(info.n_layers)
        plan = self._plan(info)
        n, needs = min(n_prompts, n_tried(self.n_prompts, not is_text)), needs_where(not is_text)
        if plan.is_screened:
            yield Planned(2 + self.n_draws + (self.measure not in ("auto", "next_kl") or not is_text), n, 0, needs)
        yield from (Planned(count, n, layer, needs) for layer, count in plan.counted().items())

    def further_conditions(self, base: Capture, under: Mapping[str, Readout]) -> Iterable[Condition]:
        """First the heads that a screen chooses, then the most harmful of one half of the prompts, removed together.

        With a screen random subspaces are those of the most harmful head's layer.
        """
        plan, measure = self._plan(base.model), chosen_measure(self.measure, base.prompts)
        choice, primary = Choice.of(plan, under, measure), plan.how[0]
        heads = [one for how in plan.how for one in plan.heads(how, choice.measured(how))]
        if plan.is_screened:
            yield from self._conditions(base, heads)
        if not plan.set_sizes or any(name not in under for name, _ in heads):
            return
        scores = self._scores(base, under)
        effects = by_draw(scores, choice, primary, measure).mean(axis=0)
        if plan.is_screened:
            top = int(choice.measured(primary)[mean_of_units(effects).argmax()])
            yield from self._conditions(base, plan.subspaces([top // plan.n_heads]))
        all_heads = choice.estimates[primary].copy() if plan.is_screened else np.empty_like(effects)
        all_heads[:, choice.measured(primary)] = effects
        ranked = all_heads[~self._held_out(scores)]
        order = np.argsort(-np.nan_to_num(ranked).mean(axis=0), kind="stable")
        yield from self._conditions(base, plan.cumulative(order))

    def _conditions(self, base: Capture, edits: Iterable[Named]) -> Iterable[Condition]:
        needs, chosen = needs_where(base.posterior is not None), self._chosen(base)
        return (Condition(name, edit, needs, read_scores, chosen) for name, edit in edits)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        if UNEDITED not in under:
            return QUANTITIES.findings(self.name, QUANTITIES.scalars({"top_head_ratio": NOTHING_TRIED}), {})
        plan, scores = self._plan(base.model), self._scores(base, under)
        primary, measures = chosen_measure(self.measure, base.prompts), measures_of(base.prompts)
        choice, error = Choice.of(plan, under, primary), measures[1]
        found = {measure: scores.units.estimates(scores.baseline(measure)) for measure in measures if measure in SIGNED}
        for measure in found.copy():  # that of the paper without an ending
            ending = "" if measure == error else f"_{measure}"
            found[f"bypass_ratio_min{ending}"] = bypass(scores, plan, measure)
            if plan.n_heads:
                found[f"late_attention_off{ending}"] = late_attention(scores, plan, measure)
        tables = {"by_layer": by_layer_table(scores, plan, measures, error)}
        notes = self._notes(base, choice, scores, primary)
        if plan.n_all > 1:
            found |= head_estimates(scores, choice, primary, error, self.n_bootstrap, self.seed)
            tables["by_head"] = by_head_table(scores, choice, measures, primary)
        if plan.set_sizes:
            found["compounding"] = compounding(scores, choice, primary)
            tables["sets"] = sets_table(scores, choice, primary, self._held_out(scores))
        return QUANTITIES.findings(self.name, QUANTITIES.scalars(found), tables, notes=notes)

    figures = staticmethod(heads_figures)

    def _plan(self, info: ModelInfo) -> Plan:
        shape, how = (info.n_layers, info.n_heads, info.d_head), tuple(dict.fromkeys(self.how))
        everything = Plan(*shape, how, self.n_donors, self.n_random, self.n_sets, self.seed)
        if everything.n_all < 2 or self.screen == "off":
            return everything
        screened = replace(everything, n_screened=self.n_screened, n_sampled=self.n_sampled)
        can = self.measure != "entropy_error" and "offloaded" not in info.device
        leaves_out = everything.n_all > self.n_screened + self.n_sampled
        saves = leaves_out and 2 * sum(screened.counted().values()) < sum(everything.counted().values())
        return screened if self.screen == "on" or (can and saves) else everything

    def _chosen(self, base: Capture) -> np.ndarray:
        return choose_prompts(base, self.n_prompts, self.seed)

    def _scores(self, base: Capture, under: Mapping[str, Readout]) -> Scores:
        rng = np.random.default_rng([self.seed, 4])
        units = units_of(base, self._chosen(base), self.n_bootstrap, rng)
        signs = units.signs(self.n_permutations, np.random.default_rng([self.seed, 5]))
        return Scores(under, UNEDITED, units, signs)

    def _held_out(self, scores: Scores) -> np.ndarray:
        """The units of a random half of the clusters; heads are ranked on the other."""
        clusters = np.random.default_rng([self.seed, 8]).permutation(np.unique(scores.units.cluster))
        return np.isin(scores.units.cluster, clusters[: len(clusters) // 2])

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, _LEAST)
        if self.n_sampled <= self.n_screened:
            found = (
                f"with n_screened = {self.n_screened}, the random heads may all be among those that the screen "
                "chooses, and then say nothing of others"
            )
            raise refused(self, "n_sampled", found, "Draw more heads than the screen chooses.")
        if self.screen == "on" and self.measure == "entropy_error":
            found = "a distance has a kink where it is small, and no slope that a screen could estimate"
            fix = "Screen by another measure, or measure all heads (--set heads.screen=off)."
            raise refused(self, "measure", found, fix)

    def _notes(self, base: Capture, choice: Choice, scores: Scores, primary: str) -> tuple[str, ...]:
        plan = choice.plan
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
        if plan.is_screened:
            notes += self._notes_on_screen(choice)
        if plan.set_sizes:
            notes.append(
                f"Sets: {plan.n_sets} at random of each size, the same for all prompts. top: ranked on "
                f"{int((~self._held_out(scores)).sum())} {scores.units.name}s, judged on the others."
            )
        if "resample" in plan.how:
            notes.append(
                f"Resampling: {plan.n_donors} draws of another {scores.units.name} for each, the same one for all "
                "heads; effects are means over draws."
            )
        return tuple(notes)

    def _notes_on_screen(self, choice: Choice) -> tuple[str, ...]:
        plan = choice.plan
        return (
            f"Of {plan.n_all} heads those were ablated that a screen by gradients ranks highest, {plan.n_screened} "
            f"for each kind of ablation, all of layers {choice.in_doubt}, where attention switched off does most more "
            f"harm than the screen says of the heads together, and {len(plan.sample)} drawn at random, by "
            f"{plan.how[0]}. Shares are of all heads: a random head that was passed over stands for several. Ratios, "
            "layers and largest effects are of measured heads. Random sets are made of random heads. screen=off "
            "measures all.",
            "The screen expands the harm to second order in one head's change, logits taken to be linear in it. It "
            "does not see what the change does to attention that is saturated further up, effects that cancel for "
            "small changes and not for large ones, or normalisation that a large change tips: heads that act so may "
            "be passed over. screen_agreement says how well it orders all heads; screen_missed how many large ones it "
            "misses.",
        )
