"""The value manifold: how few directions the values of a layer use, and whether they are ordered by uncertainty.

Points are the values at the scored positions, heads concatenated, one cloud per layer. By layer: PC1 and PC1+PC2 share,
participation ratio and intrinsic dimension of the subsample (they depend on its size), each with a jackknife interval
over prompts and a null; correlations of PC1, and of the position along a curve through the cloud, with the entropy of
the next token. At the primary layer: whether prompts of one domain lie in fewer directions than prompts of all
(`collapse`). Correlations with entropies use all prompts, and are repeated within the last token, since PC1 and
entropies both differ between classes of tokens. Formulas, nulls and failure modes are in docs/reference/probes.

Source: Paper III (arXiv 2512.23752), sections 4.2 and 5, with the controls of its critics: nulls at the same size,
all eigenvalues, centred rather than standardised, prompts left out rather than repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import ADDED, AnalysisCost, Probe, Readout, Sentences
from interp.prompt import PromptSet
from interp.statistics.estimates import Estimates
from interp.statistics.isomap_curve import N_NEIGHBOURS, curve_position
from interp.statistics.neighbours import distinct_rows
from interp.statistics.nulls import GaussianClouds
from interp.statistics.quantities import Quantities
from interp.statistics.spectra import Axes, Scaling, scaled
from interp.system.threads import side_by_side

from ..measures.cloud import Cloud, own_number
from ..measures.entropy_correlation import Order, WithinToken
from ..measures.field_checks import check_fields
from ..measures.geometry import count_distinct, dimension_estimates, spectral_estimates, spectrum_table
from ..measures.halves import recurs
from ..measures.layers import Scale
from ..measures.maps import MAX_POINTS, cloud_axes, null_points_table, points_table, snippets
from ..measures.sample_sizes import FEW_HALVED, FEW_POINTS, MIN_CLOUD, with_least
from ..measures.target import EXACT_ENTROPY, NEXT_ENTROPY, Target
from .domains import restriction
from .figures import manifold_figures
from .quantities import QUANTITIES
from .robustness import N_AXES, FirstAxis, dropped_estimates, stability_estimates, without_loudest

BY_LAYER = (
    "Layer by layer: value, 95 % interval (_low, _high), null with its 95 % band, and p over all layers. Correlations "
    "with {targets} are of all rows, the rest of the drawn ones. One layer is primary and named beforehand; the others "
    "are exploratory."
)

Treat = Callable[[Cloud, np.ndarray], Order]
"""Coordinates and the target of a cloud unchanged, or as ranks within groups."""

_LEAST = {"n_dropped": 1, "n_splits": 2, "n_permutations": 19, "n_null": 20, "n_bootstrap": 20, "per_quintile": 1}


@dataclass(frozen=True)
class Manifold(Probe):
    """PCA, dimension and entropy order of the values (or another site) at each layer.

    `site`: values, head outputs or the residual stream, whose layers are depths. `scaling`: columns centred, or
    z-scored as in the paper. `layer`: the primary one, that of the headline. `n_dropped`: how many columns of largest
    variance the robust variant leaves out. `n_splits`: half splits for the stability of the first axis.
    `n_permutations`, `n_null` (Gaussian clouds), `n_bootstrap`: sizes of the reference distributions. `per_quintile`:
    prompts of each fifth of the entropies in the sets of the domain comparison.
    `target`: what the axis and the curve are compared with, the next-token entropy or a column of numbers, or
    `column=value`, one value against the rest.
    """

    site: Literal["v", "z", "resid"] = "v"
    scaling: Scaling = "centred"
    layer: int = -1
    n_dropped: int = 3
    n_splits: int = 10
    n_permutations: int = 500
    n_null: int = 100
    n_bootstrap: int = 500
    per_quintile: int = 15
    seed: int = 0
    target: str = field(default=NEXT_ENTROPY, metadata=ADDED)

    name: ClassVar[str] = "manifold"
    least_clusters: ClassVar[int] = MIN_CLOUD
    quantities: ClassVar[Quantities] = QUANTITIES
    cost: ClassVar[AnalysisCost] = AnalysisCost(seconds=5.0)
    question: ClassVar[str] = (
        "Do value vectors lie on a low-dimensional manifold that is ordered by the model's uncertainty?"
    )
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            80, "Does the direction of largest variance follow {target}?",
            ("entropy_correlation", "{column}_correlation"),
            "The first principal component of {place} has rank correlation {value} with {target}.",
            "The first principal component of {place} has rank correlation {value} with {target}; chance alone gives "
            "{null}.",
            limit="Order along one axis does not mean that the prompts lie on a line.",
        ),
    )  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(self.site),)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        need, target = self.needs[0], Target(self.target)
        pool = Cloud.of(base, need, target)
        cloud = pool.where(base.rows["drawn"].astype(bool)).wide_enough()
        layer = cloud.layer_index(self.layer)
        own = own_number(need.site, layer, base.model)
        small = cloud.thinned(MAX_POINTS, np.random.default_rng(self.seed))
        distinct = count_distinct(cloud)
        axes, pool_axes = (cloud_axes(rows, self.scaling, N_AXES) for rows in (cloud, pool))
        clouds = cloud.gaussian(self.n_null, self.seed)
        first = FirstAxis.of(pool_axes, pool.units)
        of_layers = self._of_layers(cloud, small, clouds) | self._against_entropy(pool, first, cloud, axes)
        at_layer: list[Callable[[], Any]] = [
            lambda: restriction(pool, layer, self.scaling, self.per_quintile, self.n_permutations, self.seed),
            lambda: self._best_layers(pool, first),
        ]
        restricted, best_layers = side_by_side(lambda part: part(), at_layer)
        quantities = QUANTITIES.filled(**pool.slots, n_dropped=str(self.n_dropped))
        where = {"layer": np.arange(cloud.n_layers), "n_distinct_rows": np.array(distinct)}
        shown, texts = np.isin(cloud.units, small.units), snippets(small.rows, base)
        tables = {
            "by_layer": target.named_in(quantities.table(where | of_layers, target.say(BY_LAYER))),
            "points": points_table(small, [replace(a, scores=a.scores[shown]) for a in axes], texts),
            "null_points": null_points_table(small.points[layer], self.scaling, self.seed),
            "spectrum": spectrum_table(cloud.points[layer], self.scaling, clouds),
            **restricted.tables,
        }
        n_pool = len(distinct_rows(pool.points[layer]))
        scalars = {
            name: _counted(scalar, n_pool if scalar.n == pool.counted["n"] else distinct[layer])
            for name, scalar in quantities.scalars(of_layers, layer).items()
        }
        return quantities.findings(
            self.name,
            scalars | quantities.scalars(best_layers) | restricted.scalars,
            tables,
            arrays=_directions(pool.points, pool_axes, self.scaling) | {"primary_layer": np.array(own)},
            notes=(*target.notes, *self._notes(cloud, small, pool, own), *restricted.notes),
        )

    figures = staticmethod(manifold_figures)

    def _of_layers(self, cloud: Cloud, small: Cloud, clouds: GaussianClouds) -> dict[str, Estimates]:
        """Every number by layer that does not involve entropies, on the subsample."""
        left = without_loudest(cloud, self.n_dropped)
        parts: list[Callable[[], Mapping[str, Estimates]]] = [
            lambda: spectral_estimates(cloud, self.scaling, clouds),
            lambda: {"intrinsic_dimension": dimension_estimates(small, self.scaling, self.seed)},
            lambda: {} if left is None else dropped_estimates(left, self.scaling, self.seed),
            lambda: {"axis_stability": stability_estimates(small, self.scaling, self.n_splits, self.seed)},
        ]
        return {name: found for part in side_by_side(lambda part: part(), parts) for name, found in part.items()}

    def _against_entropy(
        self, pool: Cloud, first: FirstAxis, cloud: Cloud, drawn_axes: list[Axes]
    ) -> dict[str, Estimates]:
        """Correlations of PC1 and of the position along a curve with the target, on all prompts and with controls."""
        prefix, sizes = f"{pool.target.prefix}_correlation", (self.n_permutations, self.n_bootstrap, self.seed)
        followed: dict[str, tuple[Cloud, FirstAxis, Treat]] = {
            prefix: (pool, first, Order), f"{prefix}_within_token": (pool, first, WithinToken.of)
        }  # fmt: skip
        if pool.target.is_entropy and EXACT_ENTROPY in pool.rows:
            exact = replace(pool, target=Target(EXACT_ENTROPY))
            followed["bayes_entropy_correlation"] = exact, first, Order
        if not pool.one_row_each:
            followed[f"{prefix}_within_position"] = pool, first, Order.within_position
        if (left := without_loudest(pool, self.n_dropped)) is not None:
            axes = cloud_axes(left, self.scaling, N_AXES)
            followed[f"{prefix}_dropped"] = left, FirstAxis.of(axes, left.units), Order
        part = pool.thinned(MAX_POINTS, np.random.default_rng(self.seed))
        curve = self._curve(part.points)
        along = {"curve_order": Order(part, curve), "curve_order_within_token": WithinToken.of(part, curve)}
        if pool.target.is_entropy and pool.rows.n_rows > cloud.rows.n_rows:
            followed["entropy_correlation_drawn"] = cloud, FirstAxis.of(drawn_axes, cloud.units), Order
            along["curve_order_drawn"] = Order(cloud, self._curve(cloud.points))
        found = side_by_side(lambda each: self._of_axis(*each), followed.values())
        found += side_by_side(lambda order: order.estimates(*sizes), along.values())
        return dict(zip((*followed, *along), found, strict=True))

    def _of_axis(self, cloud: Cloud, first: FirstAxis, treat: Treat) -> Estimates:
        found = treat(cloud, first.coordinates).estimates(self.n_permutations, self.n_bootstrap, self.seed)
        return first.allowed_for(found, partial(_rho, treat, cloud))

    def _curve(self, points: np.ndarray) -> np.ndarray:
        return np.array(side_by_side(lambda of_layer: curve_position(scaled(of_layer, self.scaling)), points))

    def _best_layers(self, pool: Cloud, first: FirstAxis) -> dict[str, Estimates]:
        """The correlation of PC1 on one half of the prompts, at the layer that is best on the other half."""
        name, found = f"best_layer_{pool.target.prefix}_correlation", {}
        for ending, treat in {"": Order, "_within_token": WithinToken.of}.items():
            best = treat(pool, first.coordinates).best_layer(self.n_permutations, self.seed)
            if treat is Order:
                best = replace(best, about=with_least(best.about, pool.n_units, FEW_HALVED))
            if "layer" in best.words:
                there = first.at(int(best.words["layer"]))
                fixed = treat(pool, there.coordinates).estimates(self.n_permutations, self.n_bootstrap, self.seed)
                best = there.added_to(best, fixed, partial(_rho, treat, pool))
            found[name + ending] = best
        return found

    def refuse(self, prompts: PromptSet) -> None:
        Target(self.target).refuse(prompts)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, _LEAST, n_layers, "layer", self.site)

    def _notes(self, cloud: Cloud, small: Cloud, pool: Cloud, layer: int) -> list[str]:
        notes = [
            f"Primary layer: {layer}; columns {self.scaling}; {cloud.n_units} {cloud.unit}s, {cloud.rows.n_rows} rows.",
            "The sign of a principal axis is arbitrary, so correlations with it are given without one.",
            f"`_dropped`: without the {self.n_dropped} columns of largest variance of each layer.",
        ]
        if self.site == "resid":
            notes.append("Layers of the residual stream are depths: 0 is the embedding.")
        if pool.rows.n_rows > cloud.rows.n_rows:
            notes.append(
                f"Shares and dimensions are of the {cloud.n_units} drawn prompts: they depend on how many there are. "
                + f"What is compared with {pool.target.many} is of all {pool.n_units}"
                + (": the drawn ones were selected on entropy, which inflates correlations with it (`_drawn`)."
                   if pool.target.is_entropy else ".")
            )  # fmt: skip
        if small.rows.n_rows < cloud.rows.n_rows:
            notes.append(
                f"Intrinsic dimension and the maps use {small.rows.n_rows} of {cloud.rows.n_rows} rows "
                f"({small.n_units} whole {cloud.unit}s chosen at random)."
            )
        if pool.rows.n_rows > MAX_POINTS:
            notes.append(f"Curve order uses at most {MAX_POINTS} rows, whole {pool.unit}s chosen at random.")
        tokens, n_recurring = pool.rows["token"], int(recurs(pool.rows["token"]).sum())
        notes.append(
            f"`_within_token`: of {pool.rows.n_rows} rows with {len(np.unique(tokens))} last tokens, {n_recurring} "
            f"have one that another row has too."
        )
        if not cloud.one_row_each:
            notes.append(
                f"{pool.target.title} goes with position here. Permutations exchange whole sequences, so "
                "the null holds what position alone explains; "
                f"{pool.target.prefix}_correlation_within_position takes position out of both sides."
            )
        notes.append(
            f"Curve: one-dimensional Isomap, {N_NEIGHBOURS} neighbours, pieces joined by their shortest links."
        )
        return notes


def _counted(scalar: Scalar, n_distinct_rows: int) -> Scalar:
    """The scalar with its number of different rows, of which few make it underpowered."""
    few = min(n_distinct_rows, scalar.n_clusters or n_distinct_rows) < FEW_POINTS
    return replace(scalar, n_distinct_rows=n_distinct_rows, underpowered=scalar.underpowered or few)


def _rho(treat: Treat, pool: Cloud, coordinates: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return treat(pool.where(kept), coordinates).rho


def _directions(points: np.ndarray, axes: list[Axes], scaling: Scaling) -> dict[str, np.ndarray]:
    """PC1 of every layer as a unit vector in raw coordinates, and the mean it is measured from."""
    first = [Scale.of(x, scaling).readout(a.directions[0]) for x, a in zip(points, axes, strict=True)]
    return {"pc1_axis": np.array(first), "mean": points.mean(axis=1, dtype=np.float64)}
