"""The entropy axis: is there a direction that predicts how uncertain the model is, and is it the first principal axis?

At every layer of every site (values, head outputs, residual stream) two axes are fitted on a random half of all prompts
and evaluated on the other half: the first principal axis, which Paper III calls the entropy axis, and ridge, which is
trained to predict the entropy. Both are also fitted within the last token, with length, position, domain and surprisal
regressed out. Numbers are means over random half splits. Control tasks have random labels of token types. Formulas,
nulls and failure modes are in docs/reference/probes.

The axes are saved for interventions, from the fitting half of the first split alone. Where columns were divided by σ,
a direction w of the scaled space is two vectors of the raw one: `<site>.<axis>.axis` is w/σ, the covector that reads
the coordinate, and `<site>.<axis>.displacement` is σ∘w, the way activations move when the coordinate does. Both have
length one and are the same vector where columns were only centred.

Source: Paper III (arXiv 2512.23752), sections 4.5 and 6; Hewitt and Liang 2019 (arXiv 1909.03368) for selectivity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import ADDED, AnalysisCost, Probe, Readout, Sentences
from interp.prompt import PromptSet
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.resampling import shuffles
from interp.statistics.spectra import Scaling
from interp.system.threads import side_by_side

from ..measures.cloud import Cloud, own_number
from ..measures.field_checks import check_fields
from ..measures.halves import N_HALF_SPLITS, HalfSplit, cloud_permutations, half_splits_of, label_by_type, orders_within
from ..measures.layers import Layer, at_same_layer, by_site, layer_columns, layers_of
from ..measures.nuisances import Design, nuisance_design
from ..measures.sample_sizes import FEW_HALVED, MIN_HALVES, MIN_LEVEL
from ..measures.target import EXACT_ENTROPY, NEXT_ENTROPY, Target
from .evaluation import (
    BY_AXIS,
    FEW_RECUR,
    FEW_TOGETHER,
    Evaluation,
    axis_columns,
    by_layer_table,
    held_out_table,
    predicted_by_nuisances,
)
from .figures import axis_figures
from .quantities import ENDINGS, KEPT, PREVIOUS, QUANTITIES, WITHIN_CLUSTERS, WITHIN_TOKEN
from .readout import AXES, PlaceRead, read_place
from .setting import SURPRISAL, Treatment, previous_of, surprisal_of

Site = Literal["v", "z", "resid"]
N_CONTROLS = 20


@dataclass(frozen=True)
class ValueAxis(Probe):
    """The direction of uncertainty by PC1 and by ridge, fitted and evaluated on different prompts.

    `sites`: of v, z and resid; the first is primary. `layer`: the primary one. `scaling`: columns centred, or also
    divided by their deviation. `target`: what is predicted, the next-token entropy or a column of numbers, or
    `column=value`, one value against the rest. `n_permutations`: refits on permuted values.
    """

    sites: tuple[Site, ...] = ("v", "z", "resid")
    layer: int = -1
    scaling: Scaling = "centred"
    n_permutations: int = 200
    seed: int = 0
    target: str = field(default=NEXT_ENTROPY, metadata=ADDED)

    name: ClassVar[str] = "value_axis"
    least_clusters: ClassVar[int] = MIN_HALVES
    quantities: ClassVar[Quantities] = QUANTITIES
    cost: ClassVar[AnalysisCost] = AnalysisCost(seconds=0.8, row_seconds=3.5e-4, n_fits=2 * N_HALF_SPLITS * 3)
    question: ClassVar[str] = (
        "Is there a direction that encodes how uncertain the model is, and is it the first principal component?"
    )
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            10, "Can {target} be decoded from the activations of {model}?", ("r2",),
            "A linear readout of {place} explains {r2} of the variance of {target} in held-out {unit}s.",
            "A linear readout of {place} explains {r2} of the variance of {target} in held-out {unit}s, no more than "
            "by chance.",
            rest=" The last token and its position alone explain {nuisance_r2}; of the variance that they do not "
            "explain, the activations explain {r2_beyond_token} (interval {interval[r2_beyond_token]}).",
            open=" {n} {unit}s are too few to tell whether it holds more than the last token and position. These two "
            "alone explain {nuisance_r2} (interval {interval[nuisance_r2]}; 0 or less is no better than predicting the "
            "mean); of what they leave, a second readout explains {r2_beyond_token} (interval "
            "{interval[r2_beyond_token]}, too wide to tell).",
            limit="Decodable does not mean used: “interp run --probe causal” tests whether the model uses it.",
            further="Activations and layer were set before the run.",
        ),
    )  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (*(Need(site) for site in dict.fromkeys(self.sites)), SURPRISAL)

    def refuse(self, prompts: PromptSet) -> None:
        Target(self.target).refuse(prompts)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_permutations": 19}, n_layers, "layer", *self.sites[:1])

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        target = Target(self.target)
        clouds = {need.site: Cloud.of(base, need, target) for need in self.needs if need != SURPRISAL}
        pool = next(iter(clouds.values()))
        primary = pool.layer_index(self.layer)
        own = own_number(self.sites[0], primary, base.model)
        half_splits = half_splits_of(pool, self.seed)
        fitting = half_splits[0].fitting
        places = [p for site, cloud in clouds.items() for p in layers_of(site, cloud, fitting, self.scaling)]
        surprisal = surprisal_of(base)
        nuisances = nuisance_design(pool.rows, pool.levels("domain"), surprisal, 2 * MIN_LEVEL)
        treatments = self._treatments(pool, half_splits, nuisances)
        splits = {name: treatment.splits for name, treatment in treatments.items()}
        found = side_by_side(lambda place: read_place(place.scaled, splits), places)
        evaluations = {
            (name, axis, sought): Evaluation(sought, treatment, places, [place.read[name, axis] for place in found])
            for name, treatment in treatments.items() for axis in AXES for sought in treatment.labels.targets
        }  # fmt: skip
        ridge, within = (evaluations[name, "ridge", target.name] for name in (KEPT, WITHIN_TOKEN))
        axis, best = axis_columns(ridge, found), ridge.most_chosen(pool.n_layers)
        numbers = _at_primary(places, primary, evaluations, axis) | {
            "best_layer_r2": ridge.best_layer(pool.n_layers),
            "best_layer_r2_beyond_token": within.best_layer(pool.n_layers),
            "nuisance_r2": self._by_nuisances(pool, half_splits, surprisal, treatments[KEPT]),
        }
        for name, control in self._controls(pool, half_splits, surprisal, previous_of(base)).items():
            wanted = {name: primary} | ({f"best_layer_{name}": best} if name == PREVIOUS else {})
            read = {at: _read_alone(places[at], control, pool) for at in {*wanted.values()}}
            numbers |= {number: read[at] for number, at in wanted.items()}
        quantities = QUANTITIES.filled(**pool.slots, within=_within(pool))
        return quantities.findings(
            self.name, quantities.scalars(numbers),
            {
                "by_layer": by_layer_table(places, evaluations),
                "axes": QUANTITIES.table(layer_columns(places) | axis, BY_AXIS),
                "held_out": held_out_table(pool, half_splits[0], found[primary].predicted, base),
            },
            arrays=by_site(places, [*map(_kept, places, found)]) | {"primary_layer": np.array(own)},
            notes=(*target.notes, *self._notes(pool, treatments, nuisances, own)),
        )  # fmt: skip

    figures = staticmethod(axis_figures)

    def _treatments(self, pool: Cloud, half_splits: Sequence[HalfSplit], nuisances: Design) -> dict[str, Treatment]:
        """With only the mean taken out, and with all that the last token determines and nuisances."""
        names = (NEXT_ENTROPY, EXACT_ENTROPY) if pool.target.is_entropy else (pool.target.name,)
        targets = {name: np.asarray(pool.rows[name], np.float64) for name in names if name in pool.rows}
        rng, tokens = np.random.default_rng([self.seed, 1]), pool.rows["token"]
        controls = label_by_type(tokens, pool.sought, N_CONTROLS, rng)
        orders = shuffles(pool.units, self.n_permutations, rng)
        within = cloud_permutations(pool, tokens, self.n_permutations, rng)
        return {
            KEPT: Treatment.of(pool, half_splits, targets, orders, controls=controls),
            WITHIN_TOKEN: Treatment.of(
                pool, half_splits, targets, within, groups=tokens, nuisances=nuisances.values, few=FEW_RECUR,
                is_beyond_token=True,
            ),
        }  # fmt: skip

    def _controls(
        self, pool: Cloud, half_splits: Sequence[HalfSplit], surprisal: Mapping[str, np.ndarray],
        previous: Mapping[str, np.ndarray],
    ) -> dict[str, Treatment]:  # fmt: skip
        """Beyond the classes of the tokens before the last one, of texts; and within clusters, where there are any."""
        sought, rows, tokens = {pool.target.name: np.asarray(pool.sought, np.float64)}, pool.rows, pool.rows["token"]
        found = {}
        if previous:
            for name, column in previous.items():
                rows = rows.with_column(name, column, "index")
            design = nuisance_design(rows, (*pool.levels("domain"), *previous), surprisal, 2 * MIN_LEVEL)
            orders = cloud_permutations(pool, tokens, self.n_permutations, np.random.default_rng([self.seed, 3]))
            beyond = {"nuisances": design.values, "few": FEW_RECUR, "is_beyond_token": True}
            found[PREVIOUS] = Treatment.of(pool, half_splits, sought, orders, groups=tokens, **beyond)
        if pool.clusters is not None and pool.one_row_each:
            orders = orders_within(pool.units, self.n_permutations, np.random.default_rng([self.seed, 4]))
            few = {"few": FEW_TOGETHER, "least": FEW_HALVED}
            found[WITHIN_CLUSTERS] = Treatment.of(pool, half_splits, sought, orders, groups=pool.units, **few)
        return found

    def _by_nuisances(
        self, pool: Cloud, half_splits: Sequence[HalfSplit], surprisal: Mapping[str, np.ndarray], kept: Treatment
    ) -> Estimates:
        """Held-out R² of nuisances alone, with the token and its frequency."""
        _, token, n_rows = np.unique(pool.rows["token"], return_inverse=True, return_counts=True)
        numbers = {**surprisal, "token frequency": np.log2(n_rows[token])}
        design = nuisance_design(pool.rows, pool.levels("token", "domain"), numbers, 2 * MIN_LEVEL)
        permuted = kept.labels.permuted[:, : self.n_permutations].astype(np.float64)
        return predicted_by_nuisances(np.column_stack([pool.sought, permuted]), design, half_splits, kept.about)

    def _notes(
        self, pool: Cloud, treatments: Mapping[str, Treatment], nuisances: Design, primary: int
    ) -> tuple[str, ...]:
        first = treatments[KEPT].splits[0].half_split
        seen = np.isin(pool.rows["token"][first.held_out], pool.rows["token"][first.fitting]).mean()
        within, taken_out = treatments[WITHIN_TOKEN].splits, ", ".join(nuisances.names) or "none that varies"
        n_rows = round(np.mean([len(s.half_split.fitting) + len(s.half_split.held_out) for s in within]))
        n_tokens = len(np.unique(pool.rows["token"]))
        return (
            f"Primary place: {self.sites[0]} at layer {primary}; the others are exploratory. In the residual "
            f"stream, layer means depth: 0 is the embedding, and its primary depth is the last.",
            f"All {pool.in_words}, none chosen by {pool.target.words}: {N_HALF_SPLITS} half splits, each fitted on one "
            f"half and tested on the other; numbers are means over them.",
            f"Columns {self.scaling}. Axes are saved from the fitting half of the first half split.",
            f"`_beyond_token`: of {pool.rows.n_rows} rows with {n_tokens} last tokens, {n_rows} have one that recurs "
            f"in their half (mean over the half splits). Both sides are measured from the mean of their token in their "
            f"half, which takes out whatever the token determines, its frequency too; regressed out after: "
            f"{taken_out}.",
            f"Control tasks: {N_CONTROLS} random labellings of the tokens at the scored positions; {seen:.0%} of the "
            f"held-out rows have a token that the fitting half has too. Where tokens hardly recur the control cannot "
            f"be learned by anybody, and selectivity is R² itself.",
        )


def _read_alone(place: Layer, treatment: Treatment, pool: Cloud) -> Estimates:
    read = read_place(place.scaled, {KEPT: treatment.splits}).read[KEPT, "ridge"]
    return Evaluation(pool.target.name, treatment, [place], [read]).r2


def _within(pool: Cloud) -> str:
    """What is permuted within the last token, in words."""
    if pool.resampled == "prompt":
        return f"{pool.target.many} permuted within tokens"
    return f"what length, position and token leave of {pool.target.many}, permuted between {pool.resampled}s"


def _at_primary(
    places: Sequence[Layer], primary: int, evaluations: Mapping[tuple[str, str, str], Evaluation],
    axis: Mapping[str, Any],
) -> dict[str, Estimates]:  # fmt: skip
    """The numbers at the primary place, and R² of the other sites at the same layer (in the residual stream, after it).

    Names of PC1, and of the entropy of the exact posterior beside the model's, have a prefix.
    """
    first, found = next(iter(evaluations.values())).target, {}
    for (treatment, reader, target), evaluation in evaluations.items():
        prefix = ("bayes_" if target != first else "") + ("pc1_" if reader == "pc1" else "")
        end, r2 = ENDINGS[treatment], evaluation.r2
        found |= {
            f"{prefix}r2{end}": r2.at([primary]),
            f"{prefix}correlation{end}": evaluation.correlation.at([primary]),
        }
        if not prefix:
            found |= {f"{places[i].site}_r2{end}": r2.at([i]) for i in at_same_layer(places, primary)}
    columns = {"axis_cosine": "cosine", "selectivity": "selectivity"}
    return found | {name: axis[column].at([primary]) for name, column in columns.items()}


def _kept(place: Layer, read: PlaceRead) -> dict[str, np.ndarray]:
    """Axes in raw coordinates, zero where there is none; means, deviations and score deviations."""
    kept: dict[str, np.ndarray] = {"mean": place.scale.mean, "sigma": place.scale.sigma}
    for name in AXES:
        axis = read.directions.get(name, np.zeros(len(place.scale.mean)))
        kept[f"{name}.axis"] = place.scale.readout(axis)
        kept[f"{name}.displacement"] = place.scale.displacement(axis)
    directions = np.array([kept[f"{name}.axis"] for name in AXES])
    scores = np.asarray(place.points, np.float64) @ directions.T - directions @ place.scale.mean
    return kept | {f"{name}.score_sigma": sigma for name, sigma in zip(AXES, scores.std(axis=0), strict=True)}
