"""Does the model use the entropy axis? The axis is removed, and compared with matched directions.

The axis is fitted on some prompts and removed in others, at all positions (`at`), at one layer or several. Readouts are
downstream of the edit: the primary one is the change of the next-token prediction (KL), `quantities.READOUTS` has the
others. The axis is ranked among matched controls (`controls`), beside random directions and positive controls
(`edits`).

Sources: Paper III (arXiv 2512.23752), sections 4.5, 6.2 and 7.1, which reads the edited tensor itself, where removing a
coordinate removes its correlation by algebra, and does not match random directions; Ravfogel et al. 2020 (arXiv
2004.07667) and Belrose et al. 2023 (LEACE, arXiv 2306.03819) for removal; Marks and Tegmark 2023 (arXiv 2310.06824) for
editing along the direction in which activations move on average.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import UsageError
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import ADDED, Condition, Planned, Probe, Readout, Sentences
from interp.prompt import PromptSet
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.spectra import Scaling
from interp.statistics.units import counted
from interp.table import Table

from ..measures.answers import N_CONDITIONS
from ..measures.cloud import Cloud, n_places
from ..measures.field_checks import TOO_FEW, check_fields, refused
from ..measures.sample_sizes import FEW_FITTED, MIN_HALVES, with_least
from ..measures.target import NEXT_ENTROPY, Target
from ..programs.swaps import STREAM, Directions, Swaps, is_swap, planned_swaps, program_findings, undefined_swap
from .axis import Axis, Kind, Split, after_removal, fit_axes, held_out, refit_axes, saved
from .edits import BASELINE, EditedLayer, Fill, Intervention, Name, compared, on_the_run
from .effects import Effects, described, estimates
from .figures import causal_figures
from .prompt_sample import PromptSample, rows_of
from .quantities import QUANTITIES
from .read import KL, LOSS, OUTCOME, SIZE, Later, Reader, read_labels, read_text, relative_axis
from .tables import notes, tables_of, words

N_CONTROLS = {"text": 100, "tunnel": 1000}
SULA, MIXED = "sula", "mixed"
MOST_SULA = 250
"""Problems that the set has."""

_LAYERS = (
    "Write middle, all, or numbers (−1 is the last): 8,12 edits two together, 8;12 one after the other; in Python "
    "((8, 12),) and ((8,), (12,))."
)

AXIS = "axis"

Layer = int | Literal["middle", "all"]


@dataclass(frozen=True)
class Causal(Probe):
    """The entropy axis is removed, and its effects are ranked among refitted controls of equal removed variance.

    `site`: v, z or resid. `axis`: leace (removes all that is linear), ridge (as in `value_axis`), encoding (Cov(x,
    entropy)) or pc1. `layers`: `middle`, `all`, or numbers; those of one tuple (on the command line between commas) are
    edited together, and each tuple (between semicolons) is an intervention, the first of which is primary. `at`: the
    edited positions (all, scored, last). `fill`: what a removed coordinate becomes, its mean or zero. `n_prompts` are
    run, at most half of the pool; `n_controls` (None: 100 on texts, 1,000 on tunnels); `n_sula` problems for the
    calibration of language models (0: none). `target`: what the axis predicts, the next-token entropy, a column of
    numbers, or `column=value`, one value against the rest.
    """

    site: Literal["v", "z", "resid"] = "v"
    axis: Kind = "leace"
    layers: tuple[tuple[Layer, ...], ...] = ((-1,),)
    at: Literal["all", "scored", "last"] = "all"
    scaling: Scaling = "centred"
    fill: Fill = "mean"
    n_prompts: int = 40
    n_controls: int | None = None
    n_sula: int = 40
    n_bootstrap: int = 500
    seed: int = 0
    target: str = field(default=NEXT_ENTROPY, metadata=ADDED)

    name: ClassVar[str] = "causal"
    least_clusters: ClassVar[int] = MIN_HALVES
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "Does the model use the entropy axis: what changes downstream when it is removed?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            30, "Does {model} use the direction in {place} that predicts {target}?", ("kl_beyond_controls",),
            "Removing it changes the prediction (KL) by {kl}, more than removals of the same size along matched "
            "directions (fitted in the same way to permuted values of {target}): {controls} on average.",
            "Removing it changes the prediction (KL) by {kl}, {no_more} than removals of the same size along matched "
            "directions: {controls} on average ({controls_band} for 95 % of them). A change by {least} would be found "
            "80 % of the time.",
            "Removing it changes the prediction (KL) by {kl}{own_interval}. Removals of the same size along matched "
            "directions, which carry no information about {target}, change it by more: {controls} on average "
            "({controls_band} for 95 % of them). A smaller effect shows neither use nor "
            "the opposite: matched directions may carry other information that the model uses.",
            further="Random directions change it by {beside[kl_beyond_random]}. Of the variance of {target}, a linear "
            "readout explains {axis_r2} before the removal and, refitted, {remaining_r2} after it. Larger effects are "
            "possible here: replacing this layer's head outputs by another prompt's changes the prediction by "
            "{resample_kl}.",
            limit="In other layers it may matter more or less.",
        ),
    )  # fmt: skip
    observational: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(self.site), self._edited)

    @property
    def _edited(self) -> Need:
        """The site at all edited positions, of the prompts that may be run."""
        return Need(self.site, PromptSample(self.n_prompts, self.seed), self.at)

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """All edits, read on the prompts of the run; removals and controls on other sets too."""
        split = self._split(base)
        cloud = split.cloud
        for layers in self._sets(cloud.n_layers):
            axes = self._axes(split, layers)
            if not axes:
                raise UsageError(
                    asked=f"the axis of {self.site} that predicts {cloud.target.words}, at layer {words(layers)}",
                    found=f"nothing varies there, or {cloud.target.words} is always the same",
                    fix="Choose another layer (--set causal.layers=...), or more varied prompts.",
                )
            intervention = self._intervention(base, split, axes)
            yield from self._on_the_run(base, split, intervention)
            yield from self._elsewhere(base, intervention)
        swaps = self._swaps(base, split)
        if swaps is not None and self.site == STREAM.site:
            reading = "ridge" if self.axis == "leace" else self.axis  # swaps move only what is read
            axes = fit_axes(split, swaps.depths(cloud.n_layers), reading, self.scaling)
            found = {
                depth: {AXIS: Directions(axis.covector[None], axis.displacement[None])} for depth, axis in axes.items()
            }
            yield from swaps.conditions(base, found, self.seed)

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """All edits of every intervention, and on texts the removals and controls again, on SULA."""
        self.refuse_fields(info.n_layers)
        n, has_heads = self._n_controls(not is_text), info.n_heads > 0
        n_run = min(self.n_prompts, n_prompts // 2)
        text = (LOSS,) if is_text else ()
        if self.site == STREAM.site and self.target != NEXT_ENTROPY:
            yield from planned_swaps(info, n_run)
        for layers in self._sets(n_places(self.site, info.n_layers)):
            names = list(on_the_run(layers, n, has_heads, self.axis != "pc1"))
            whole = sum(name.is_compared for name in names)
            yield Planned(whole, n_run, min(layers), (KL, SIZE, Need(self.site), *text))
            yield Planned(len(names) - whole, n_run, min(layers), (KL, SIZE))
            if is_text and self.n_sula:
                n_there = 1 + len(list(compared(layers, n, has_heads)))
                yield Planned(n_there, self.n_sula, min(layers), (KL, SIZE, OUTCOME), SULA)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        split = self._split(base)
        cloud, target = split.cloud, split.cloud.target
        quantities = QUANTITIES.filled(**target.slots)
        of_swaps, by_program = self._by_program(base, under, split)
        under = {name: read for name, read in under.items() if not is_swap(name)}
        sets = self._sets(cloud.n_layers)
        axes = self._axes(split, sorted({layer for layers in sets for layer in layers}))
        clusters = split.clusters
        n_fitted = len(np.unique(cloud.units[split.fitting]))
        flagged = partial(with_least, n=n_fitted + self.n_prompts, least=FEW_FITTED + self.n_prompts)
        weights = bootstrap_weights(clusters, None, self.n_bootstrap, np.random.default_rng([self.seed, 2]))
        about = flagged(counted(np.arange(len(clusters)), clusters, cloud.unit))
        effects = Effects.of(under, self.n_bootstrap, np.random.default_rng([self.seed, 3]))
        if effects is None:
            why = "the model was not run under edits"
            found, tables = {"kl": Estimates.undefined(why, about=about | {"n": 0})}, {}
        else:
            found = estimates(effects, under, flagged, len(split.run_rows), cloud.unit)
            tables = tables_of(effects, under, weights, target)
        edited = {layer: axes[layer] for layer in sets[0] if layer in axes}
        found |= {name: described(of, about) for name, of in self._explained(split, edited, weights).items()}
        tables |= of_swaps
        return quantities.findings(
            self.name, quantities.scalars(found) | by_program, tables,
            arrays=saved(self.site, axes, self.axis, cloud) | {"run": split.run},
            notes=(*target.notes, *self._notes(split, sets[0]),
                   *notes(effects, tables.get("matching"), target.many)),
        )  # fmt: skip

    figures = staticmethod(causal_figures)

    def _on_the_run(self, base: Capture, split: Split, intervention: Intervention) -> Iterable[Condition]:
        """Every condition, on the prompts that the axis was not fitted on."""
        brief = Reader(np.asarray(base.rows[NEXT_ENTROPY], np.float64)[split.run_rows])
        also = (LOSS,) if base.posterior is None else (OUTCOME,)
        whole = replace(brief, also=also, later=self._later(split, intervention.layers))
        n, has_heads = self._n_controls(base.prompts.is_tunnel), base.model.n_heads > 0
        names = on_the_run(intervention.layers, n, has_heads, self.axis != "pc1")
        for name, edits in intervention.named((Name(intervention.layers, BASELINE), *names)):
            reader = replace(whole if name.is_compared else brief, facts=intervention.facts(name.subject))
            yield Condition(str(name), edits, reader.needs, reader, split.run)

    def _swaps(self, base: Capture, split: Split) -> Swaps | None:
        target = split.cloud.target
        return None if target.is_entropy else Swaps.of(base, target, split.run, self.seed)

    def _by_program(
        self, base: Capture, under: Mapping[str, Readout], split: Split
    ) -> tuple[dict[str, Table], dict[str, Scalar]]:
        """What swaps of the axis did, compared with the program, if the model is one."""
        target = split.cloud.target
        if base.mechanism is None or target.is_entropy:
            return {}, {}
        if self.site != STREAM.site:
            return {}, undefined_swap("directions are swapped in the residual stream: --set causal.site=resid")
        names = {AXIS: "interchange_accuracy"}
        return program_findings(base, under, self._swaps(base, split), names, target, self.n_bootstrap)

    def _elsewhere(self, base: Capture, intervention: Intervention) -> Iterable[Condition]:
        """Calibration on evidence about a label, of language models; ordinary text where the run's own is none."""
        where, need, read, n, n_pool = SULA, OUTCOME, read_labels, self.n_sula, self.n_sula * N_CONDITIONS
        if base.posterior is not None:
            where, need, read, n, n_pool = MIXED, LOSS, read_text, self.n_prompts, self.n_prompts
        if not base.prompts.is_text or n == 0:
            return
        layers, n_controls = intervention.layers, self._n_controls(base.prompts.is_tunnel)
        names = Name(layers, AXIS), *compared(layers, n_controls, base.model.n_heads > 0)
        for name, edits in intervention.named((Name(layers, BASELINE), *names)):
            on = str(replace(name, on=where))
            yield Condition(on, edits, (KL, SIZE, need), read, np.arange(n), where, n_pool)

    def _intervention(self, base: Capture, split: Split, axes: Mapping[int, Axis]) -> Intervention:
        reduced, n = base.reduced(self._edited), self._n_controls(base.prompts.is_tunnel)
        refits = refit_axes(split, axes, self.axis, self.scaling, n, self.seed)
        places = []
        for layer, axis in axes.items():
            rows = rows_of(reduced, layer, split.run)
            scored = rows if self.at == "last" else split.points(layer)[split.run_rows]
            places.append(EditedLayer.of(layer, axis, rows, scored, refits[layer], self.fill, n, self.seed))
        return Intervention(
            places, self.site, self.at, self.fill, tuple(range(base.model.n_heads)), base.model.n_layers
        )

    def _later(self, split: Split, layers: tuple[int, ...]) -> Later | None:
        """The layers after the last edited one; None without any, without variation or with a single cluster."""
        cloud, sought = split.cloud, split.sought[split.run_rows]
        axes = self._axes(split, range(max(layers) + 1, cloud.n_layers))
        penalties = {layer: axis.penalty for layer, axis in axes.items()}
        prompt, cluster = (
            np.unique(names[split.run_rows], return_inverse=True)[1] for names in (cloud.prompts, cloud.units)
        )
        if not penalties or np.ptp(sought) == 0 or not cluster.any():
            return None
        directions = [relative_axis(split.points(layer)[split.run_rows], sought, x) for layer, x in penalties.items()]
        return Later(Need(self.site), penalties, sought, prompt, cluster, np.array(directions))

    def _split(self, base: Capture) -> Split:
        return Split.of(Cloud.of(base, Need(self.site), Target(self.target)), self.n_prompts, self.seed)

    def _axes(self, split: Split, layers: Iterable[int]) -> dict[int, Axis]:
        return fit_axes(split, layers, self.axis, self.scaling)

    def _n_controls(self, is_tunnel: bool) -> int:
        return N_CONTROLS["tunnel" if is_tunnel else "text"] if self.n_controls is None else self.n_controls

    def _explained(self, split: Split, edited: Mapping[int, Axis], weights: np.ndarray) -> dict[str, Estimates]:
        """R² of the axes, and of ridge after a removal, on the run's prompts, over all layers edited together."""
        names = ("axis_r2", "remaining_r2")
        if not edited:
            why = f"nothing varies at the edited layer, or {split.cloud.target.words} is always the same"
            return dict.fromkeys(names, Estimates.undefined(why))
        prompt = np.unique(split.cloud.prompts[split.run_rows], return_inverse=True)[1]
        read = [
            (
                held_out(split.points(layer), split, axis),
                after_removal(split, layer, self.axis, self.scaling, self.seed),
            )
            for layer, axis in edited.items()
        ]  # [layer, before or after, errors or totals, row]
        sums = np.apply_along_axis(lambda x: np.bincount(prompt, x), -1, np.sum(read, axis=0))
        errors, totals = sums.transpose(1, 2, 0)
        found = Estimates.shares(errors, totals, weights, why="" if totals.any() else "the entropy does not vary")
        return {name: found.at([place]) for place, name in enumerate(names)}

    def _sets(self, count: int) -> tuple[tuple[int, ...], ...]:
        """The layers of every intervention, counted from 0."""
        words: dict[Layer, Iterable[int]] = {"middle": (count // 2,), "all": range(count)}
        words |= {layer: (layer % count,) for layer in range(-count, count)}
        if not {layer for each in self.layers for layer in each} <= set(words):
            what = "depths" if self.site == "resid" else "layers"
            raise refused(self, "layers", f"the model has the {what} 0 to {count - 1}", _LAYERS)
        sets = ({number for layer in each for number in words[layer]} for each in self.layers)
        return tuple(dict.fromkeys(tuple(sorted(each)) for each in sets))

    def refuse(self, prompts: PromptSet) -> None:
        Target(self.target).refuse(prompts)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_prompts": 4, "n_controls": 19, "n_bootstrap": 20})
        if not self.layers or not all(self.layers):
            raise refused(self, "layers", "an intervention edits one layer or several", _LAYERS)
        if not 0 <= self.n_sula <= MOST_SULA:
            found = TOO_FEW if self.n_sula < 0 else "there are not so many"
            raise refused(self, "n_sula", found, f"Choose 0 or more, up to {MOST_SULA}.")
        if n_layers is not None:
            self._sets(n_places(self.site, n_layers))

    def _notes(self, split: Split, layers: tuple[int, ...]) -> tuple[str, ...]:
        what = "depth" if self.site == "resid" else "layer"
        n_fitted = len(np.unique(split.cloud.prompts[split.fitting]))
        filled = "their mean over the edited positions" if self.fill == "mean" else "0"
        return (
            f"Primary, named beforehand: KL of the next token when the {self.axis} axis of {self.site} is removed at "
            f"{what} {words(layers)} (positions: {self.at}). Everything else is exploratory, its p over all of it.",
            f"The axis was fitted on {n_fitted} {split.cloud.unit}s and removed in {len(split.run)} others; columns "
            f"{self.scaling}. Removed coordinates become {filled}.",
        )
