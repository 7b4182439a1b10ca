"""One layer of one site, in raw and in scaled coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.spectra import Scaling, constant_columns

from .cloud import Cloud
from .geometry import count_distinct
from .sample_sizes import FEW_POINTS

SITE_WORDS = {"v": "values", "z": "head outputs", "resid": "residual stream"}
DEPTH = "layer (residual stream: depth)"
"""The title of an axis along the layers of several sites."""


@dataclass(frozen=True)
class Scale:
    """Mean and column deviations of the fitting half, and the divisor of each column that they amount to."""

    mean: Float[np.ndarray, " feature"]
    sigma: Float[np.ndarray, " feature"]
    divisor: Float[np.ndarray, " feature"]

    @classmethod
    def of(cls, fitting: np.ndarray, scaling: Scaling) -> "Scale":
        """Columns that never vary have σ = 0 and the divisor 1."""
        fitting = np.asarray(fitting, dtype=np.float64)
        sigma = np.where(constant_columns(fitting), 0.0, fitting.std(axis=0))
        divisor = np.where(sigma > 0, sigma, 1.0) if scaling == "zscored" else np.ones_like(sigma)
        return cls(fitting.mean(axis=0), sigma, divisor)

    def apply(self, points: np.ndarray) -> Float[np.ndarray, "row feature"]:
        scaled = np.array(points, dtype=np.float64)
        scaled -= self.mean
        if (self.divisor != 1).any():
            scaled /= self.divisor
        return scaled

    def readout(self, axis: np.ndarray) -> Float[np.ndarray, " feature"]:
        """The covector that reads the coordinate off raw activations: w/σ where columns were divided by σ."""
        return unit(axis / self.divisor)

    def displacement(self, axis: np.ndarray) -> Float[np.ndarray, " feature"]:
        """The raw displacement that moving along the axis amounts to: σ∘w where columns were divided by σ."""
        return unit(axis * self.divisor)


@dataclass(frozen=True)
class ScaledRows:
    """Scaled rows and, unless there are more than twice as many as features, all their inner products."""

    points: Float[np.ndarray, "row feature"]
    products: Float[np.ndarray, "row row"] | None

    @classmethod
    def of(cls, points: Float[np.ndarray, "row feature"]) -> "ScaledRows":
        return cls(points, points @ points.T if len(points) <= 2 * points.shape[1] else None)


@dataclass(frozen=True)
class Layer:
    """One layer of one site (for the residual stream, one depth)."""

    site: str
    layer: int
    points: np.ndarray
    scale: Scale
    n_distinct_rows: int

    @property
    def scaled(self) -> ScaledRows:
        """Computed at each call: the rows of all layers would not fit in memory."""
        return ScaledRows.of(self.scale.apply(self.points))


def layer_columns(places: Sequence[Layer]) -> dict[str, np.ndarray]:
    """Site, layer and number of different rows, as columns of a table."""
    names = ("site", "layer", "n_distinct_rows")
    return {name: np.array([getattr(place, name) for place in places]) for name in names}


def at_places(places: Sequence[Layer], about: Mapping[str, Any]) -> dict[str, Any]:
    """What is counted at every layer, underpowered too where few rows differ."""
    few = [about["underpowered"] or place.n_distinct_rows < FEW_POINTS for place in places]
    return {**about, "underpowered": few}


def by_site(places: Sequence[Layer], arrays: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays named `<site>.<name>`, layer by layer."""
    found: dict[str, list[np.ndarray]] = {}
    for place, kept in zip(places, arrays, strict=True):
        for name, value in kept.items():
            found.setdefault(f"{place.site}.{name}", []).append(value)
    return {name: np.array(values) for name, values in found.items()}


def layers_of(site: str, cloud: Cloud, fitting: Int[np.ndarray, " fitted"], scaling: Scaling) -> list[Layer]:
    """Every layer of a site, scaled by its fitting rows."""
    distinct = count_distinct(cloud)
    return [
        Layer(site, layer, points, Scale.of(points[fitting], scaling), distinct[layer])
        for layer, points in enumerate(cloud.points)
    ]


def at_same_layer(places: Sequence[Layer], primary: int) -> list[int]:
    """The places of the other sites at the primary layer; the residual stream is read after it."""
    layer, site = places[primary].layer, places[primary].site
    block = layer - (site == "resid")
    return [
        i for i, place in enumerate(places)
        if place.site != site and place.layer == max(0, block) + (place.site == "resid")
    ]  # fmt: skip


def unit(vector: Float[np.ndarray, " feature"]) -> Float[np.ndarray, " feature"]:
    """The vector at length one; zeros stay zeros."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else np.zeros_like(vector)
