"""The value manifold: how few directions the values of a layer use, and whether they are ordered by uncertainty.

Points are the values at the scored positions, heads concatenated, one cloud a layer. At every layer: PC1 and
PC1+PC2 share, participation ratio and intrinsic dimension of the drawn prompts, each jackknifed over prompts and
beside its null; how PC1, and the position along a curve through the cloud, follow the entropy of the next token;
what else PC1 follows. At the primary layer: whether prompts of one domain lie in fewer directions than prompts of
all (`collapse`). Formulas, nulls and failure modes are in probes/README.md.

Source: Paper III (arXiv 2512.23752), sections 4.2 and 5, with the controls of its critics: nulls at the same size,
all eigenvalues, centred rather than standardised, prompts left out rather than repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import AnalysisCost, Figure, Probe, Readout
from interp.statistics.isomap_curve import N_NEIGHBOURS, curve_position
from interp.statistics.neighbours import distinct_rows
from interp.statistics.nulls import GaussianClouds
from interp.statistics.spectra import Axes, Scaling, readout_direction, scaled
from interp.system.threads import side_by_side

from ..measures.cloud import Cloud
from ..measures.entropy_correlation import Resampled, correlation_profile, within_position
from ..measures.field_checks import refuse_too_few
from ..measures.geometry import count_distinct, dimension_profile, spectral_profiles, spectrum_table
from ..measures.maps import MAX_POINTS, cloud_axes, null_points_table, points_table, umap_table
from ..measures.profiles import Profile, profile_table
from ..measures.sample_sizes import FEW_POINTS
from .domains import Settings, restriction
from .explained import explained_table
from .robustness import dropped_profiles, dropped_table, influence, stability_profile, without_loudest

BY_LAYER = (
    "Layer by layer, on the drawn rows: value, 95 % interval (_low, _high), null with its 95 % band, and p over all "
    "layers. One layer is primary and named beforehand; the others are exploratory."
)

MEANINGS = {
    "next_entropy_bits": "How well the first axis orders the prompts by the entropy of the next token.",
    "bayes_entropy_bits": "How well the first axis orders the rows by the entropy of the exact posterior.",
    "pool": "The same on the whole pool, without choosing prompts by their entropy: the fairer of the two, since "
    "selecting on entropy inflates correlations with it.",
    "within": "The same within each position of the sequence: what the first axis knows about uncertainty beyond how "
    "far the sequence has come.",
    "curve": "How well the position along a curve through the points orders the prompts by the entropy of the next "
    "token.",
}


_TOO_FEW = {
    "per_quintile": "that draws nothing",
    "n_dropped": "that leaves out nothing",
    "n_splits": "one halving is no mean over halvings",
}


@dataclass(frozen=True)
class Manifold(Probe):
    """PCA, dimension and entropy order of the values (or another site) at each layer.

    `site`: values, head outputs or the residual stream, whose layers are depths. `scaling`: columns centred, or
    z-scored as in the paper. `layer`: the primary one, which the headline is read at. `n_dropped`: how many of the
    loudest columns the robust variant leaves out. `n_splits`: halvings for the stability of the first axis.
    `n_permutations`, `n_null` (Gaussian clouds), `n_bootstrap`: sizes of the reference distributions. `per_quintile`:
    prompts of each fifth of the entropies in the sets of the domain comparison. `umap`: an embedding as illustration.
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
    umap: Literal["off", "on"] = "off"
    seed: int = 0

    name: ClassVar[str] = "manifold"
    cost: ClassVar[AnalysisCost] = AnalysisCost(3.0, layer_seconds=0.2, row_seconds=0.0, row_bytes=30_000)
    question: ClassVar[str] = (
        "Do the values lie on a low-dimensional manifold, and is it ordered by the model's uncertainty?"
    )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(self.site),)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self._check_sizes()
        need = self.needs[0]
        cloud = Cloud.of(base.drawn, need)
        layer = cloud.layer_index(self.layer)
        small = cloud.thinned(MAX_POINTS, np.random.default_rng(self.seed))
        distinct = count_distinct(cloud)
        axes = cloud_axes(cloud, self.scaling)
        clouds = GaussianClouds(cloud.rows.n_rows, cloud.points.shape[2], self.n_null, self.seed)
        pool = Cloud.of(base, need)
        profiles = self._profiles(cloud, small, pool, axes, clouds)
        restricted = restriction(pool, layer, self._comparison())
        influenced = influence(small, layer, self.scaling, self.seed)
        headline = ["pc1_plus_pc2_share", "participation_ratio", "entropy_correlation", "curve_order"]
        tables = {
            "by_layer": profile_table(profiles, distinct, BY_LAYER),
            "points": points_table(small, _rows_of(axes, cloud, small), base),
            "null_points": null_points_table(small.points[layer], self.scaling, self.seed),
            "spectrum": spectrum_table(cloud.points[layer], self.scaling, clouds),
            "explained": explained_table(np.array([a.scores[:, 0] for a in axes]), cloud),
            "dropped": dropped_table(small, layer, self.scaling, self.seed),
            **influenced.tables,
            **restricted.tables,
        }
        if self.umap == "on":
            tables["umap"] = umap_table(small, layer, self.scaling, self.seed, base)
        n_points = {"entropy_correlation_pool": len(distinct_rows(pool.points[layer]))}
        scalars = {name: _counted(p[layer], n_points.get(name, distinct[layer])) for name, p in profiles.items()}
        scalars |= {name: _counted(scalar, distinct[layer]) for name, scalar in influenced.scalars.items()}
        return Findings(
            probe=self.name,
            scalars={**scalars, **restricted.scalars},
            tables=tables,
            arrays=_directions(cloud, axes, self.scaling) | {"primary_layer": np.array(layer)},
            notes=(*self._notes(cloud, small, pool, layer), *restricted.notes),
            headline=(*headline, *(["collapse"] if "collapse" in restricted.scalars else [])),
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import figures

        return figures(findings)

    def _profiles(
        self, cloud: Cloud, small: Cloud, pool: Cloud, axes: list[Axes], clouds: GaussianClouds
    ) -> dict[str, Profile]:
        """Every number that is given layer by layer."""
        parts: list[Callable[[], Mapping[str, Profile]]] = [
            lambda: spectral_profiles(cloud, self.scaling, clouds),
            lambda: {"intrinsic_dimension": dimension_profile(small, self.scaling, self.seed)},
            lambda: self._along_axis(cloud, axes),
            lambda: {"curve_order": self._along_curve(small)},
            lambda: self._without_loudest(cloud),
            lambda: {"axis_stability": stability_profile(small, self.scaling, self.n_splits, self.seed)},
        ]
        if pool.rows.n_rows > cloud.rows.n_rows:
            parts.append(lambda: {"entropy_correlation_pool": self._in_pool(pool)})
        return {name: profile for part in side_by_side(lambda part: part(), parts) for name, profile in part.items()}

    def _along_axis(self, cloud: Cloud, axes: list[Axes]) -> dict[str, Profile]:
        """Correlations of PC1 with the entropies, for sequences also within position."""
        first = np.array([a.scores[:, 0] for a in axes])
        resampled = Resampled.of(cloud, self.n_permutations, self.n_bootstrap, self.seed)

        def profile(coordinates: np.ndarray, column: str, rows: Cloud, meaning: str) -> list[Scalar]:
            return correlation_profile(coordinates, column, rows, resampled, MEANINGS[meaning])

        found: dict[str, Profile] = {
            "entropy_correlation": profile(first, "next_entropy_bits", cloud, "next_entropy_bits")
        }
        if "bayes_entropy_bits" in cloud.rows:
            found["bayes_entropy_correlation"] = profile(first, "bayes_entropy_bits", cloud, "bayes_entropy_bits")
        if not cloud.one_row_each:
            residual, ranked = within_position(first, "next_entropy_bits", cloud)
            found["entropy_correlation_within_position"] = profile(residual, "next_entropy_bits", ranked, "within")
        return found

    def _without_loudest(self, cloud: Cloud) -> dict[str, Profile]:
        """Spectral statistics and the order of PC1 without the loudest columns of each layer."""
        left = without_loudest(cloud, self.n_dropped)
        if left is None:
            return {}
        first = np.array([a.scores[:, 0] for a in cloud_axes(left.cloud, self.scaling, 1)])
        resampled = Resampled.of(cloud, self.n_permutations, self.n_bootstrap, self.seed)
        meaning = f"{MEANINGS['next_entropy_bits']} Measured without the {self.n_dropped} columns of largest variance."
        return {
            **dropped_profiles(left, self.n_dropped, self.scaling, self.seed),
            "entropy_correlation_dropped": correlation_profile(first, "next_entropy_bits", cloud, resampled, meaning),
        }

    def _along_curve(self, cloud: Cloud) -> list[Scalar]:
        positions = [curve_position(scaled(points, self.scaling)).coordinate for points in cloud.points]
        resampled = Resampled.of(cloud, self.n_permutations, self.n_bootstrap, self.seed)
        return correlation_profile(np.array(positions), "next_entropy_bits", cloud, resampled, MEANINGS["curve"])

    def _in_pool(self, pool: Cloud) -> list[Scalar]:
        """The correlation on every captured prompt, none chosen by its entropy."""
        strata = np.zeros(pool.rows.n_rows, dtype=np.int64)
        pool = replace(pool, rows=pool.rows.with_column("stratum", strata, "label"))
        first = np.array([a.scores[:, 0] for a in cloud_axes(pool, self.scaling, 1)])
        resampled = Resampled.of(pool, self.n_permutations, self.n_bootstrap, self.seed)
        return correlation_profile(first, "next_entropy_bits", pool, resampled, MEANINGS["pool"])

    def _comparison(self) -> Settings:
        return Settings(self.scaling, self.per_quintile, self.n_permutations, self.n_null, self.seed)

    def _check_sizes(self) -> None:
        least = {"n_permutations": 19, "n_null": 20, "n_bootstrap": 20}
        refuse_too_few(self, least, "too few to make a reference distribution from")
        refuse_too_few(self, {"per_quintile": 1, "n_dropped": 1, "n_splits": 2}, _TOO_FEW)

    def _notes(self, cloud: Cloud, small: Cloud, pool: Cloud, layer: int) -> list[str]:
        notes = [
            f"Primary layer: {layer} of 0 to {cloud.n_layers - 1}; columns {self.scaling}; {cloud.n_units} "
            f"{cloud.unit}s, {cloud.rows.n_rows} rows.",
            "The sign of a principal axis is arbitrary, so correlations with it are given without one.",
            f"`_dropped`: without the {self.n_dropped} columns of largest variance of each layer.",
        ]
        if self.site == "resid":
            notes.append("Layers of the residual stream are depths: 0 is the embedding.")
        if pool.rows.n_rows > cloud.rows.n_rows:
            notes.append(
                f"The drawn prompts were selected on entropy, which inflates correlations with it: "
                f"entropy_correlation_pool is the figure on all {pool.n_units}."
            )
        if small.rows.n_rows < cloud.rows.n_rows:
            notes.append(
                f"Intrinsic dimension, curve order and the maps use {small.rows.n_rows} of {cloud.rows.n_rows} rows "
                f"({small.n_units} whole {cloud.unit}s chosen at random)."
            )
        if not cloud.one_row_each:
            notes.append(
                "Entropy goes with position here. Permutations exchange whole sequences, so the null holds what "
                "position alone explains; entropy_correlation_within_position takes position out of both sides."
            )
        notes.append(
            f"Curve: one-dimensional Isomap, {N_NEIGHBOURS} neighbours, pieces joined by their shortest links."
        )
        return notes


def _counted(scalar: Scalar, n_distinct_rows: int) -> Scalar:
    """The scalar with its number of different rows, which decides whether it is underpowered."""
    few = n_distinct_rows < FEW_POINTS
    return replace(scalar, n_distinct_rows=n_distinct_rows, underpowered=scalar.underpowered or few)


def _rows_of(axes: list[Axes], cloud: Cloud, small: Cloud) -> list[Axes]:
    """The scores of the rows that a thinned cloud kept."""
    if small is cloud:
        return axes
    kept = np.isin(cloud.units, small.units)
    return [replace(a, scores=a.scores[kept]) for a in axes]


def _directions(cloud: Cloud, axes: list[Axes], scaling: Scaling) -> dict[str, np.ndarray]:
    """PC1 of every layer as a unit vector in raw coordinates, and the mean it is measured from."""
    first = [readout_direction(points, a.directions[0], scaling) for points, a in zip(cloud.points, axes, strict=True)]
    return {"pc1_axis": np.array(first), "mean": cloud.points.mean(axis=1, dtype=np.float64)}
