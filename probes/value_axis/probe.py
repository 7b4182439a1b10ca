"""The entropy axis: is there a direction that tells how uncertain the model is, and is it the loudest one?

At every layer of every site (values, head outputs, residual stream) two axes are fitted on a random half of the whole
pool and judged on the prompts of the other half: the first principal axis, which Paper III calls the entropy axis,
and ridge, which is trained to tell the entropy. Each twice, as it is and with position, length, last token and domain
regressed out. Beside them: control tasks (random labels of token types), and how well disjoint halves agree.
Formulas, nulls and failure modes are in probes/README.md.

The axes are saved for interventions, from the fitting half alone. Where columns were divided by σ, a direction w of
the scaled space is two vectors of the raw one: `<site>.<axis>.axis` is w/σ, the covector that reads the coordinate,
and `<site>.<axis>.displacement` is σ∘w, the way activations move when the coordinate does. Both have length one and
are the same vector where columns were only centred.

Source: Paper III (arXiv 2512.23752), sections 4.5 and 6; Hewitt and Liang 2019 (arXiv 1909.03368) for selectivity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import AnalysisCost, Figure, Probe, Readout
from interp.statistics.spectra import Scaling
from interp.system.threads import side_by_side

from ..measures.axis_stability import RandomPairs, Split, ridge_split_cosines
from ..measures.cloud import Cloud
from ..measures.field_checks import refuse_too_few, refuse_unknown
from ..measures.halves import Halves, halve, label_by_type, split_rows
from ..measures.nuisances import Removal, all_nuisances, mean_alone
from ..measures.places import Counted, Place, ScaledRows, at_same_layer, places_of
from ..measures.sample_sizes import FEW_HALVES
from .readout import AXES, Labels, Reading, make_labels, read
from .scalars import MEANINGS, Judgement, nuisance_scalar, selectivity, stability_scalar
from .tables import AxisRow, Judged, axes_table, by_layer_table, held_out_table

Site = Literal["v", "z", "resid"]
TARGETS = ("next_entropy_bits", "bayes_entropy_bits")
N_CONTROLS = 20


@dataclass(frozen=True)
class Setting:
    """What all places share: rows, halves, and for nuisances kept and removed the regression and the labels."""

    pool: Cloud
    halves: Halves
    removals: Mapping[str, Removal]
    labels: Mapping[str, Labels]
    counted: Counted


@dataclass(frozen=True)
class ValueAxis(Probe):
    """The direction of uncertainty by PC1 and by ridge, fitted and judged on different prompts.

    `sites`: of v, z and resid; the first is primary. `layer`: the primary one. `scaling`: columns
    centred, or also divided by their deviation. `n_permutations` refits on exchanged entropies, `n_bootstrap`
    resamples of judged prompts, `n_splits` into halves for the stability, `n_null` draws of random directions.
    """

    sites: tuple[Site, ...] = ("v", "z", "resid")
    layer: int = -1
    scaling: Scaling = "centred"
    n_permutations: int = 200
    n_bootstrap: int = 500
    n_splits: int = 10
    n_null: int = 100
    seed: int = 0

    name: ClassVar[str] = "value_axis"
    cost: ClassVar[AnalysisCost] = AnalysisCost(row_seconds=3e-4)
    question: ClassVar[str] = "Is there a direction that tells how uncertain the model is, and is it the loudest one?"

    @property
    def needs(self) -> tuple[Need, ...]:
        refuse_unknown(self)
        return tuple(Need(site) for site in dict.fromkeys(self.sites))

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        least = {"n_permutations": 19, "n_bootstrap": 20, "n_splits": 2, "n_null": 20}
        refuse_too_few(self, least, "too few to say what chance alone would give")
        clouds = {need.site: Cloud.of(base, need) for need in self.needs}
        pool = next(iter(clouds.values()))
        primary = pool.layer_index(self.layer)
        halves = halve(pool, self.n_permutations, self.n_bootstrap, np.random.default_rng(self.seed))
        places = [p for site, cloud in clouds.items() for p in places_of(site, cloud, halves.fitting, self.scaling)]
        setting = self._setting(pool, halves, places)
        judgements, split_cosines = self._judge(places, setting)
        judged = {key: (j.r2(halves, setting.counted), j.correlation(halves, setting.counted))
                  for key, j in judgements.items()}  # fmt: skip
        axis_rows = self._axis_rows(judgements, split_cosines, setting)
        nuisance = nuisance_scalar(
            pool.entropy_bits, TARGETS[0], all_nuisances(pool.rows, halves.fitting), halves, setting.counted
        )
        scalars = _scalars(places, primary, judged, axis_rows) | {"nuisance_r2": nuisance}
        headline = ["r2", "r2_beyond_nuisances", "pc1_r2", "axis_cosine", "selectivity", "stability"]
        return Findings(
            probe=self.name,
            scalars=scalars,
            tables={
                "by_layer": by_layer_table(places, judged),
                "axes": axes_table(places, axis_rows),
                "held_out": held_out_table(pool, halves, judgements["kept", "ridge", TARGETS[0]], primary, base),
            },
            arrays=_arrays(places, judgements) | {"primary_layer": np.array(primary)},
            notes=self._notes(pool, setting, primary),
            headline=tuple(name for name in headline if name in scalars),
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import axis_figures

        return axis_figures(findings)

    def _setting(self, pool: Cloud, halves: Halves, places: Sequence[Place]) -> Setting:
        targets = {name: np.asarray(pool.rows[name], np.float64) for name in TARGETS if name in pool.rows}
        rng = np.random.default_rng([self.seed, 1])
        controls = label_by_type(pool.rows["token"], pool.entropy_bits, N_CONTROLS, rng)
        removals = {"kept": mean_alone(pool.rows.n_rows, halves.fitting)}
        nuisances = all_nuisances(pool.rows, halves.fitting)
        if nuisances.names and nuisances.leaves_something:
            removals["removed"] = nuisances
        n_judged = len(np.unique(pool.units[halves.judged]))
        counted = Counted.of(places, n_judged, pool.unit, pool.n_units < FEW_HALVES)
        labels = {
            name: make_labels(targets, controls if name == "kept" else controls[:, :0], halves, removal)
            for name, removal in removals.items()
        }
        return Setting(pool, halves, removals, labels, counted)

    def _judge(
        self, places: Sequence[Place], setting: Setting
    ) -> tuple[dict[tuple[str, str, str], Judgement], list[np.ndarray | None]]:
        """Every axis and target, nuisances kept and removed, and the cosines between halves, at every place."""
        splits = self._splits(setting.pool)

        def judge(place: Place) -> tuple[dict[str, dict[str, Reading]], np.ndarray | None]:
            rows = place.scaled
            read_by = {
                name: read(rows, setting.labels[name], setting.halves, removal)
                for name, removal in setting.removals.items()
            }
            return read_by, _split_cosines(rows, read_by["kept"]["ridge"], setting.pool.entropy_bits, splits)

        readings, cosines = zip(*side_by_side(judge, places), strict=True)
        found = {}
        for name, labels in setting.labels.items():
            for axis in AXES:
                of_axis = [of_place[name][axis] for of_place in readings]
                for target in labels.true:
                    found[name, axis, target] = Judgement(axis, target, name == "removed", labels, of_axis)
        return found, list(cosines)

    def _splits(self, pool: Cloud) -> list[Split]:
        rng = np.random.default_rng([self.seed, 2])
        return [split_rows(pool.units, rng) for _ in range(self.n_splits)]

    def _axis_rows(
        self, judgements: Mapping[tuple[str, str, str], Judgement], split_cosines: Sequence[np.ndarray | None],
        setting: Setting,
    ) -> list[AxisRow]:  # fmt: skip
        """Cosine with PC1, selectivity and stability of the ridge axis at every place."""
        ridge = judgements["kept", "ridge", TARGETS[0]]
        cosines = ridge.cosine(setting.counted)
        selective, controls = selectivity(ridge, setting.halves, setting.counted)
        pairs = RandomPairs.of(self._splits(setting.pool), self.n_null, self.seed)
        rows = []
        for i, (reading, found) in enumerate(zip(ridge.readings, split_cosines, strict=True)):
            stable = _stability(reading, found, setting.counted, i, pairs)
            found = np.full(self.n_splits, np.nan) if found is None else found
            penalty = reading.penalty.get(TARGETS[0], float("nan"))
            rows.append(AxisRow(cosines[i], selective[i], float(controls[i]), stable, found, penalty))
        return rows

    def _notes(self, pool: Cloud, setting: Setting, primary: int) -> tuple[str, ...]:
        halves = setting.halves
        nuisances = all_nuisances(pool.rows, halves.fitting)
        seen = np.isin(pool.rows["token"][halves.judged], pool.rows["token"][halves.fitting]).mean()
        notes = [
            f"Primary place: {self.sites[0]} at layer {primary}; the others are exploratory. In the residual "
            f"stream, layer means depth: 0 is the embedding, and its primary depth is the last.",
            f"The whole pool, {pool.n_units} {pool.unit}s, none chosen by its entropy: "
            f"{pool.n_units - setting.counted.n} to fit on, {setting.counted.n} others to judge on.",
            f"Columns {self.scaling}. Axes are saved from the fitting half with nuisances kept; `_beyond_nuisances` "
            f"ones with them removed.",
            f"Control tasks: {N_CONTROLS} random labellings of the tokens at the scored positions; {seen:.0%} of the "
            f"judged rows have a token that the fitting half has too. Where tokens hardly recur the control cannot be "
            f"learned by anybody, and selectivity is R² itself.",
        ]
        if "removed" in setting.removals:
            notes.append(f"Nuisances: {', '.join(nuisances.names)}.")
        else:
            why = "they have too many levels for the fitting half" if nuisances.names else "none of them varies"
            notes.append(f"Nuisances were not removed: {why}.")
        return tuple(notes)


def _stability(
    reading: Reading, cosines: np.ndarray | None, counted: Counted, place: int, pairs: RandomPairs
) -> Scalar:
    if cosines is None:
        reason = "the entropy does not vary" if reading.penalty else "nothing varies in these activations"
        return counted.undefined(reason, "1", MEANINGS["stability"])
    return stability_scalar(cosines, pairs.mean_abs_cosine(reading.spectrum), counted, place)


def _split_cosines(
    rows: ScaledRows, reading: Reading, entropy: np.ndarray, splits: Sequence[Split]
) -> np.ndarray | None:
    """At the penalty that the fitting half chose, halves being of its size; None where there is no axis."""
    if not reading.penalty or np.ptp(entropy) == 0:
        return None
    return ridge_split_cosines(rows, entropy, reading.penalty[TARGETS[0]] * reading.scale, splits)


def _scalars(places: Sequence[Place], primary: int, judged: Judged, axes: list[AxisRow]) -> dict[str, Scalar]:
    """The numbers at the primary place: ridge bears no prefix, PC1 and the exact posterior's entropy do.

    Of the other sites R² alone, at the same layer (in the residual stream, after it).
    """
    scalars = {}
    for (nuisances, axis, target), (r2, correlation) in judged.items():
        prefix = ("bayes_" if target == "bayes_entropy_bits" else "") + ("pc1_" if axis == "pc1" else "")
        suffix = "_beyond_nuisances" if nuisances == "removed" else ""
        scalars[f"{prefix}r2{suffix}"] = r2[primary]
        scalars[f"{prefix}correlation{suffix}"] = correlation[primary]
        if not prefix:
            scalars |= {f"{places[i].site}_r2{suffix}": r2[i] for i in at_same_layer(places, primary)}
    row = axes[primary]
    return scalars | {"axis_cosine": row.cosine, "selectivity": row.selectivity, "stability": row.stability}


def _arrays(places: Sequence[Place], judgements: Mapping[tuple[str, str, str], Judgement]) -> dict[str, np.ndarray]:
    """Axes in raw coordinates, layer by layer, zero where there is none; means, deviations and score deviations."""
    arrays: dict[str, list[np.ndarray]] = {}
    for i, place in enumerate(places):
        kept: dict[str, np.ndarray] = {"mean": place.scale.mean, "sigma": place.scale.sigma}
        names = []
        for (nuisances, axis, target), judgement in judgements.items():
            if target != TARGETS[0]:
                continue
            scaled_axis = judgement.readings[i].axes.get(target, np.zeros(len(place.scale.mean)))
            name = axis + ("_beyond_nuisances" if nuisances == "removed" else "")
            names.append(name)
            kept[f"{name}.axis"] = place.scale.readout(scaled_axis)
            kept[f"{name}.displacement"] = place.scale.displacement(scaled_axis)
        directions = np.array([kept[f"{name}.axis"] for name in names])
        scores = np.asarray(place.points, np.float64) @ directions.T - directions @ place.scale.mean
        kept |= {f"{name}.score_sigma": sigma for name, sigma in zip(names, scores.std(axis=0), strict=True)}
        for name, value in kept.items():
            arrays.setdefault(f"{place.site}.{name}", []).append(value)
    return {name: np.array(values) for name, values in arrays.items()}
