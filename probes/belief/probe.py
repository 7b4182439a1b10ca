"""Belief: can the exact posterior be decoded from the activations, beyond position and token?

Where an ideal observer's belief is known (hidden states of a Markov source, values that are not taken yet, the label
of an in-context task), a linear readout of it is fitted at every layer of every site and tested on other sequences,
beside refits on permuted beliefs, control tasks, position alone, and random subspaces of the same dimension.
Subspaces of the residual stream are then swapped between sequences (`interchange`).

Saved for every site, layer by layer, in raw coordinates, fitted without the units in `held_out`: `<site>.readout`
(covectors that read each component), `<site>.encoding` (how activations move with each component),
`<site>.readout_basis` and `<site>.encoding_basis` (orthonormal, as many rows as the belief has dimensions),
`<site>.origin` and `belief_mean` (the means there): belief ≈ belief_mean + readout (x − origin).

Sources: Paper I (arXiv 2512.22471) on belief clusters; Shai et al. 2024 (arXiv 2405.15943) on belief simplices; Hewitt
and Liang 2019 (arXiv 1909.03368) on control tasks. Formulas, nulls and failure modes are in docs/reference/probes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import ADDED, AnalysisCost, Condition, Planned, Probe, Readout, Sentences
from interp.prompt import PromptSet
from interp.statistics.quantities import Quantities
from interp.statistics.spectra import principal_axes, scaled
from interp.system.threads import side_by_side
from interp.table import Table

from ..measures.cloud import Cloud, own_number
from ..measures.field_checks import check_fields
from ..measures.layers import at_places, at_same_layer, by_site, layers_of
from ..measures.sample_sizes import FEW_HALVES, MIN_FOLDS, with_least
from ..measures.target import OWN_ENTROPY, Target
from ..programs.swaps import STREAM, Directions, Swaps, planned_swaps, program_findings
from .estimates import (
    MIXED_IN,
    baseline_estimate,
    by_layer_table,
    components_table,
    decoded_table,
    estimates_by_place,
    output_distance,
    score_estimates,
    scores,
    share_estimates,
    still,
)
from .figures import belief_figures
from .interchange import (
    BASELINE,
    INTERCHANGE,
    N_ELSEWHERE,
    N_RANDOM,
    OUTPUT,
    SUBSPACES,
    Pairs,
    make_pairs,
    named_depth,
    outcomes,
    swaps,
)
from .quantities import QUANTITIES
from .readout import N_CONTROLS, Reading, Setting, beyond_token, make_setting, read_belief
from .target import ExactBelief

Site = Literal["resid", "v", "z"]
FEW_DEPTHS = 6
"""Residual depths up to which each is swapped; of more, this many at equal distances."""


@dataclass(frozen=True)
class Belief(Probe):
    """Linear readout of the exact belief at every layer of residual stream, values and z, tested on other sequences.

    `sites`: of resid, v and z; the first is primary (`resid` alone reads networks without attention).
    `layer`: the primary one, of the residual stream the depth. `interchange`: whether belief subspaces of the residual
    stream are swapped between sequences too. `n_permutations` refits on permuted beliefs, `n_bootstrap` resamples.
    `target`: none is the exact belief; else a column of the prompts, of numbers or names, or `column=value`.
    """

    sites: tuple[Site, ...] = ("resid", "v", "z")
    layer: int = -1
    interchange: bool = True
    n_permutations: int = 100
    n_bootstrap: int = 500
    seed: int = 0
    target: str | None = field(default=None, metadata=ADDED)

    name: ClassVar[str] = "belief"
    least_clusters: ClassVar[int] = MIN_FOLDS
    quantities: ClassVar[Quantities] = QUANTITIES
    cost: ClassVar[AnalysisCost] = AnalysisCost(row_seconds=1.5e-4, n_fits=3 * 2 * (10 + 5))
    """Fits: at three sites, beyond position and not, of every pair of folds left out and of every fold."""
    question: ClassVar[str] = "Can the exact posterior be decoded from the activations, beyond position and token?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            20, "Can {target} be decoded from the activations of {model}?", ("r2",),
            "A linear readout of {place} explains {r2} of the variance of {target} in held-out {unit}s.",
            "A linear readout of {place} predicts {target} no better than one fitted to shuffled values.",
            limit="A model trained to predict the posterior, as wind tunnels are, is expected to hold it in its last "
            "layers. Decodable does not mean used.",
            target="the exact Bayesian posterior",
            rest=" The last token and its position alone explain {token_r2}; of the variance that they do not "
            "explain, the activations explain {r2_beyond_token} (interval {interval[r2_beyond_token]}).",
            open=" Whether that is more than the last token and position explain cannot be told: these two alone "
            "explain {token_r2}, and of what they leave, a second readout explains {r2_beyond_token} (interval "
            "{interval[r2_beyond_token]}, too wide to tell).",
            further="The output itself can be exact even if a linear readout is not.",
        ),
    )  # fmt: skip
    observational: ClassVar[bool] = False
    own_prompts: ClassVar[str | None] = "sula"

    @property
    def needs_posterior(self) -> bool:  # pyrefly: ignore[bad-override]
        return self.target is None

    @property
    def needs(self) -> tuple[Need, ...]:
        return (*(Need(site) for site in dict.fromkeys(self.sites)), *((OUTPUT,) if self.target is None else ()))

    @property
    def _column(self) -> Target | None:
        return None if self.target is None else Target(self.target, takes_names=True)

    def refuse(self, prompts: PromptSet) -> None:
        if self._column is not None:
            self._column.refuse(prompts)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_permutations": 19, "n_bootstrap": 20}, n_layers, "layer", *self.sites[:1])

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """Swaps of belief subspaces between held-out sequences, and their controls."""
        if not self.interchange or "resid" not in self.sites:
            return ()
        belief, pool = ExactBelief.of(base, self._column), Cloud.of(base, STREAM)
        setting = make_setting(pool, belief, 1, 1, self._rng(0))
        if belief.rank == 0:
            return ()
        if self._column is not None:
            of_program = Swaps.of(base, self._column, setting.held_out, self.seed)
            if of_program is None:
                return ()
            found = {depth: self._bases(pool.points[depth], setting) for depth in of_program.depths(pool.n_layers)}
            alive = {depth: {name: Directions(axes) for name, axes in of_depth.items() if axes.any(axis=1).all()}
                     for depth, of_depth in found.items()}  # fmt: skip
            return of_program.conditions(base, alive, self.seed)
        pairs, bases = self._pairs(base, pool, setting), {}
        for depth in _spread(pool.n_layers) if len(pairs.prompts) else ():
            axes = self._bases(pool.points[depth], setting)
            axes["principal"] = principal_axes(scaled(pool.points[depth], "centred"), belief.rank).directions
            if all(len(a) == belief.rank and a.any(axis=1).all() for a in axes.values()):
                bases[depth] = axes
        return swaps(base, pairs, bases, self.seed) if bases else ()

    def _bases(self, points: np.ndarray, setting: Setting) -> dict[str, np.ndarray]:
        """Bases of readout and encoding at one depth."""
        reading = read_belief(points, setting, self._rng(1))
        return {name: _basis(getattr(reading, name), setting.belief.rank) for name in ("readout", "encoding")}

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """Every subspace at every depth that is swapped; about a fifth of the prompts is held out."""
        if self.interchange and "resid" in self.sites and self.target is not None:
            yield from planned_swaps(info, -(-n_prompts // 5))
        elif self.interchange and "resid" in self.sites:
            depths = _spread(info.n_layers + 1)
            for depth in depths:
                n = len(SUBSPACES) + (N_RANDOM if depth == named_depth(depths) else N_ELSEWHERE)
                yield Planned(n, -(-n_prompts // 5), depth, (OUTPUT,), at="scored")

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        belief = ExactBelief.of(base, self._column)
        clouds = {site: Cloud.of(base, Need(site)) for site in self.sites}
        pool = next(iter(clouds.values()))
        primary = pool.layer_index(self.layer)
        own = own_number(self.sites[0], primary, base.model)
        setting = make_setting(pool, belief, self.n_permutations, self.n_bootstrap, self._rng(0))
        all_rows = np.arange(pool.rows.n_rows)
        places = [p for site, cloud in clouds.items() for p in layers_of(site, cloud, all_rows, "centred")]
        readings = side_by_side(lambda place: read_belief(place.points, setting, self._rng(1)), places)
        counted = with_least(pool.counted, pool.n_units, FEW_HALVES)
        scored = [scores(setting, reading) for reading in readings]
        by_place = estimates_by_place(places, readings, pool, setting, self._rng(3))
        by_place |= {name: score_estimates([s[name] for s in scored], setting) for name in scored[0]}
        everywhere = at_places(places, counted)
        by_place = {name: replace(of, about={**everywhere, **of.about}) for name, of in by_place.items()}
        mine, (beyond, by_token) = readings[primary], beyond_token(places[primary].points, setting)
        left = f"position and the last token predict {belief.slots['belief']} exactly"
        left = left if belief.rank else still(belief)
        alone = {
            "position_r2": baseline_estimate(setting.position, mine.by_position, mine.by_mean, setting),
            "token_r2": baseline_estimate(setting.token, by_token, mine.by_mean, setting),
            "r2_beyond_token": share_estimates([beyond], setting, left),
        }
        if self.target is None:
            assert base.posterior is not None, "a belief comes with a posterior"
            score = output_distance(base[OUTPUT], np.asarray(base.posterior, np.float64), setting.orders)
            alone["output_tvd"] = score_estimates([score], setting)
        alone = {name: replace(of, about=counted) for name, of in alone.items()}
        quantities = QUANTITIES.filled(unit=pool.resampled, **belief.slots)
        tables, of_swaps = self._swapped(base, under, setting, pool, quantities)
        by_layer = by_layer_table(places, by_place, readings, scored, belief)
        scalars = {
            **quantities.scalars(by_place, primary),
            **{f"{places[i].site}_{name}": quantities.scalar(f"{places[i].site}_{name}", by_place[name], i)
               for i in at_same_layer(places, primary) for name in ("r2", "r2_beyond_position")},
            **quantities.scalars(alone), **of_swaps,
        }  # fmt: skip
        return quantities.findings(
            self.name, scalars,
            {
                "by_layer": (self._column or OWN_ENTROPY).named_in(by_layer),
                "components": components_table(setting, mine.kept),
                "decoded": decoded_table(pool, setting, mine.predicted, base, self._rng(2)),
                **tables,
            },
            arrays={
                **by_site(places, [_kept(reading, belief.rank) for reading in readings]),
                "held_out": setting.held_out, "primary_layer": np.array(own),
                "belief_mean": belief.values[setting.folds.code != 0].mean(axis=0),
            },
            notes=self._notes(pool, setting, own, bool(tables)),
        )  # fmt: skip

    figures = staticmethod(belief_figures)

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])

    def _unswapped(self) -> str:
        """Why nothing was interchanged."""
        if not self.interchange:
            return "Interchange was not run: it was switched off."
        if "resid" not in self.sites:
            return "Interchange was not run: it swaps parts of the residual stream, and resid is not among the sites."
        if self.target is not None:
            return "Interchange was not run: what a swap of this column should do to the answer is not known here."
        return (
            "Interchange was asked for and not possible: no held-out sequence has a donor at the same positions, "
            "or the belief varies along no direction that could be fitted."
        )

    def _pairs(self, base: Capture, pool: Cloud, setting: Setting) -> Pairs:
        assert base.outcomes is not None, "a belief comes with a posterior"
        return make_pairs(pool.prompts, base.outcomes, setting.held_out, self._rng(5))

    def _swapped(
        self, base: Capture, under: Mapping[str, Readout], setting: Setting, pool: Cloud, quantities: Quantities
    ) -> tuple[dict[str, Table], dict[str, Scalar]]:
        """What the swaps did; scalars at the primary depth. Swaps of a column need a compiled program."""
        if self._column is not None and base.mechanism is not None:
            swaps = Swaps.of(base, self._column, setting.held_out, self.seed)
            names = {"readout": "interchange_accuracy", "encoding": "interchange_accuracy_by_encoding"}
            return program_findings(base, under, swaps, names, self._column, self.n_bootstrap)
        if BASELINE not in under:
            return {}, {}
        found = outcomes(under, self._pairs(base, pool, setting), pool, self.n_bootstrap)
        middle = named_depth([*{depth for depth, _ in found}])
        turned = {subspace: found[middle, subspace]["redirected_bits"] for subspace in SUBSPACES}
        words = {"depth": str(middle), "rank": str(setting.belief.rank), "whole": f"{turned['all'].value[0]:.3g}"}
        named = {"redirected": turned["encoding"], "redirected_by_readout": turned["readout"]}
        scalars = quantities.scalars({name: replace(of, words=words) for name, of in named.items()})
        return {"interchange": QUANTITIES.stacked([*found.values()], INTERCHANGE, depth="layer")}, scalars

    def _notes(self, pool: Cloud, setting: Setting, primary: int, is_swapped: bool) -> tuple[str, ...]:
        belief, n_components, many = setting.belief, setting.n_components, setting.belief.slots["beliefs"]
        n_still = int((~belief.varies).sum())
        kinds = {
            "distribution": "a probability distribution; linear predictions are put on the simplex by Euclidean "
            f"projection, and for KL mixed with {MIXED_IN:.0%} of their mean",
            "set": "a set (each component in or out); a component is decoded as in above one half",
            "vector": "neither a distribution nor a set, so that R² alone is defined",
            "category": "a name, each a component that is 0 or 1; the component predicted highest is decoded",
        }
        notes = [
            f"What is read: the {belief.source}, {n_components} components that fill {belief.rank} dimensions; it is "
            f"{kinds[belief.kind]}.",
            f"Primary place: {self.sites[0]} at layer {primary}; the others are exploratory. In the residual "
            "stream, layer means depth: 0 is the embedding, and its primary depth is the last.",
            f"{pool.rows.n_rows} rows of {pool.in_words} in {setting.folds.n} folds; every number is from "
            f"{pool.unit}s that the readout was not fitted on, its penalty chosen among the others.",
            f"Control tasks: {N_CONTROLS} deals of {many} to tokens"
            + (" at each position." if not pool.one_row_each else "."),
            "What can be read need not be used: random subspaces often hold it too, and only an edit shows whether the "
            "model reads it there.",
            "Interchange at scored positions, among sequences that the subspaces were not fitted on, each with one "
            f"donor; of the depths swapped the {'middle' if self.target is None else 'first'} one was named "
            "beforehand." if is_swapped else
            self._unswapped(),
        ]  # fmt: skip
        if n_still:
            notes.append(f"{n_still} of {n_components} components never vary and count for nothing.")
        if not setting.position.names:
            notes.append("Position does not vary between rows: r2_beyond_position is r2.")
        return tuple(notes)


def _kept(reading: Reading, rank: int) -> dict[str, np.ndarray]:
    """Readout, encoding and their orthonormal bases; zero where there is none."""
    kept = {"readout": reading.readout, "encoding": reading.encoding, "origin": reading.origin}
    return kept | {f"{name}_basis": _basis(kept[name], rank) for name in ("readout", "encoding")}


def _spread(n_depths: int) -> list[int]:
    return np.unique(np.linspace(0, n_depths - 1, min(FEW_DEPTHS, n_depths)).round().astype(int)).tolist()


def _basis(vectors: np.ndarray, rank: int) -> np.ndarray:
    """Orthonormal rows that span the leading `rank` directions of the vectors; zero rows where there are fewer."""
    _, singular, right = np.linalg.svd(vectors, full_matrices=False)
    alive = (singular > 1e-9 * max(singular[0], 1e-300))[:rank, None]
    basis = np.zeros((rank, vectors.shape[1]))
    basis[: len(right[:rank])] = np.where(alive, right[:rank], 0.0)
    return basis
