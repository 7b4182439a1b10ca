"""The axis that is removed: fitted on the prompts that are not run, layer by layer, in raw coordinates.

An axis is a covector a, which reads the coordinate c = x·a, and a displacement d with a·d = 1, along which x moves.
They are equal for centred columns; for columns divided by σ, a direction w of the scaled space is a = w/σ and d = σ∘w.

    leace      reads as `ridge`, moves along `encoding`: afterwards Cov(x − d c, entropy) = 0 for any a; with a =
               Σ⁻¹ Cov(x, entropy) it is the smallest such change (LEACE, Belrose et al. 2023, arXiv 2306.03819)
    ridge      predicts the next-token entropy; leaves what other directions predict
    encoding   Cov(x, entropy): how activations move, on average, with the entropy
    pc1        the first principal axis, which Paper III calls the entropy axis

All are turned so that the entropy rises along them. Another target replaces the entropy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.ridge import PrincipalForm, fit_ridge
from interp.statistics.spectra import Scaling

from ..measures.cloud import Cloud
from ..measures.layers import Scale
from ..measures.permutations import permutations_within
from .prompt_sample import chosen_clusters

Kind = Literal["ridge", "leace", "encoding", "pc1"]


@dataclass(frozen=True)
class Split:
    """Rows to fit on, and the prompts that are run with their rows and clusters."""

    cloud: Cloud
    fitting: Int[np.ndarray, " fitted"]
    run: Int[np.ndarray, " prompt"]
    run_rows: Int[np.ndarray, " row"]
    clusters: Num[np.ndarray, " prompt"]

    @classmethod
    def of(cls, cloud: Cloud, n_prompts: int, seed: int) -> "Split":
        """Whole clusters, at most half of them, are run."""
        prompts, first = np.unique(cloud.prompts, return_index=True)
        clusters = cloud.units[first]
        chosen = chosen_clusters(clusters, n_prompts, seed, most=cloud.n_units // 2)
        rows, run = np.isin(cloud.units, chosen), np.isin(clusters, chosen)
        return cls(cloud, np.flatnonzero(~rows), prompts[run], np.flatnonzero(rows), clusters[run])

    @cached_property
    def sought(self) -> Float[np.ndarray, " all"]:
        """The entropy, or the target that was chosen, at every row."""
        return np.asarray(self.cloud.sought, np.float64)

    def points(self, layer: int) -> Float[np.ndarray, "all feature"]:
        return self.cloud.points[layer].astype(np.float64)


@dataclass(frozen=True)
class Axis:
    """`covector` a (of length one) and `displacement` d, a·d = 1; `penalty` is the ridge penalty chosen here."""

    covector: Float[np.ndarray, " feature"]
    displacement: Float[np.ndarray, " feature"]
    penalty: float

    @property
    def is_orthogonal(self) -> bool:
        return np.array_equal(self.covector, self.displacement)


def fit_axis(
    points: np.ndarray, entropy: Float[np.ndarray, " row"], units: Int[np.ndarray, " row"], kind: Kind, scaling: Scaling
) -> Axis | None:
    """The axis of one layer from its fitting rows; None where nothing varies."""
    found = fit_together(points, entropy[:, None], units, kind, scaling)
    return found[0] if found else None


def fit_together(
    points: np.ndarray,
    entropies: Float[np.ndarray, "row target"],
    units: Int[np.ndarray, " row"],
    kind: Kind,
    scaling: Scaling,
) -> list[Axis]:
    """The axis of every target, each with its own penalty; none where the rows or a target never vary."""
    scale = Scale.of(points, scaling)
    x, y = scale.apply(points), entropies - entropies.mean(axis=0)
    form = PrincipalForm.of(x)
    if len(form.singular) == 0 or form.singular[0] <= 1e-10 * np.linalg.norm(points):
        return []
    ridge = fit_ridge(form, y, units, np.full((len(y), 1), len(y) ** -0.5))
    read, encoded = ridge.coefficients.T @ form.directions, y.T @ x  # [target, feature]
    first = np.repeat(form.directions[:1], y.shape[1], axis=0)
    directions = {"ridge": read, "leace": read, "encoding": encoded, "pc1": first}[kind]
    if np.ptp(entropies, axis=0).min() == 0 or not np.linalg.norm(directions, axis=1).all():
        return []
    rises = np.einsum("rt,rt->t", x @ directions.T, y) >= 0
    directions = np.where(rises, 1.0, -1.0)[:, None] * directions
    axes = []
    for w, moved, penalty in zip(directions, encoded if kind == "leace" else directions, ridge.penalty, strict=True):
        a = w / scale.divisor
        a = a / np.linalg.norm(a)
        d = moved * scale.divisor
        is_one = scaling == "centred" and kind != "leace"
        axes.append(Axis(a, a if is_one else d / (d @ a), float(penalty)))
    return axes


def fit_axes(split: Split, layers: Iterable[int], kind: Kind, scaling: Scaling) -> dict[int, Axis]:
    """The axes of these layers, without those where nothing varies."""
    cloud, fitting = split.cloud, split.fitting
    entropy, units = split.sought[fitting], cloud.units[fitting]
    found = {layer: fit_axis(cloud.points[layer][fitting], entropy, units, kind, scaling) for layer in layers}
    return {layer: axis for layer, axis in found.items() if axis is not None}


def refit_axes(
    split: Split, layers: Iterable[int], kind: Kind, scaling: Scaling, n: int, seed: int
) -> dict[int, list[Axis]]:
    """At each layer `n` axes fitted to entropies permuted between clusters of a domain, in the same orders everywhere.

    None for `pc1`, which does not depend on the entropies.
    """
    if kind == "pc1":
        return {layer: [] for layer in layers}
    cloud, fitting = split.cloud, split.fitting
    has_domains = "domain" in cloud.rows and cloud.levels("domain")
    domain = cloud.rows["domain"][fitting] if has_domains else np.zeros(len(fitting))
    units = cloud.units[fitting]
    orders = permutations_within(np.unique(domain, return_inverse=True)[1], units, n, np.random.default_rng([seed, 4]))
    permuted = split.sought[fitting][orders].T  # [row, control]
    return {layer: fit_together(cloud.points[layer][fitting], permuted, units, kind, scaling) for layer in layers}


def held_out(
    points: Float[np.ndarray, "all feature"], split: Split, axis: Axis | None
) -> tuple[Float[np.ndarray, " run"], Float[np.ndarray, " run"]]:
    """Squared errors of the entropy of the run rows, predicted from the axis or by the mean of the fitting rows."""
    y, truth = split.sought[split.fitting], split.sought[split.run_rows]
    totals = np.square(truth - y.mean())
    if axis is None:  # nothing varies
        return totals, totals
    coordinate = points @ axis.covector
    x = coordinate[split.fitting]
    slope = (x - x.mean()) @ (y - y.mean()) / np.square(x - x.mean()).sum()
    return np.square(truth - (y.mean() + slope * (coordinate[split.run_rows] - x.mean()))), totals


def after_removal(
    split: Split, layer: int, kind: Kind, scaling: Scaling, seed: int
) -> tuple[Float[np.ndarray, " run"], Float[np.ndarray, " run"]]:
    """The same for ridge, fitted after an axis was removed that was fitted to the other half of the clusters."""
    points, sought, units = split.points(layer), split.sought, split.cloud.units
    drawn = np.random.default_rng([seed, 5]).permutation(np.unique(units[split.fitting]))
    is_first = np.isin(units[split.fitting], drawn[: len(drawn) // 2])
    first, others = split.fitting[is_first], split.fitting[~is_first]
    removed = fit_axis(points[first], sought[first], units[first], kind, scaling)
    if removed is not None:
        points = points - np.outer(points @ removed.covector, removed.displacement)
    readout = fit_axis(points[others], sought[others], units[others], "ridge", scaling)
    return held_out(points, replace(split, fitting=others), readout)


def saved(site: str, axes: Mapping[int, Axis], kind: str, cloud: Cloud) -> dict[str, np.ndarray]:
    """Axes by layer in raw coordinates, zero at layers that were not cut."""
    both = np.zeros((2, cloud.n_layers, cloud.points.shape[2]))
    for layer, axis in axes.items():
        both[:, layer] = axis.covector, axis.displacement
    return {f"{site}.{kind}.axis": both[0], f"{site}.{kind}.displacement": both[1]}
