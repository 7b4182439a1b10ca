"""The shape of a cloud at every layer: spectral statistics and intrinsic dimension, with intervals and nulls."""

import numpy as np

from interp.findings import Interval, Scalar
from interp.statistics.dimension import intrinsic_dimension
from interp.statistics.estimate import null_from_draws
from interp.statistics.jackknife import deletions, spectral_intervals
from interp.statistics.neighbours import distinct_rows
from interp.statistics.nulls import GaussianClouds, layer_null_statistics, null_spectra
from interp.statistics.ratio import ratio
from interp.statistics.spectra import SPECTRAL, Scaling, eigenvalues, gram_statistics, scaled, smaller_gram
from interp.table import Table, number_columns

from .cloud import Cloud

N_DIMENSION_NULLS = 20

N_SHOWN = 50
"""Components in the table of the spectrum."""

UNITS = {"pc1_share": "fraction", "pc1_plus_pc2_share": "fraction", "participation_ratio": "dimensions"}

MEANINGS = {
    "pc1_share": "Share of the variance between prompts that lies along one direction.",
    "pc1_plus_pc2_share": "Share of the variance between prompts that lies in one plane: near 1, the prompts lie on a "
    "flat sheet; at the null, the plane is what noise of this size would give.",
    "participation_ratio": "How many directions share the variance about equally: 1 on a line, near the number of "
    "prompts for noise.",
    "intrinsic_dimension": "How many coordinates it takes to distinguish near neighbours (TwoNN); below its null, the "
    "prompts lie on something curved or clustered that a flat cloud of the same covariance does not have.",
}

ALL_ALIKE = "every row is the same point: nothing varies"

NULL_NAMES = {
    "centred": "independent Gaussian columns, each with its own variance, at this size",
    "zscored": "standard Gaussian cloud at this size",
}


def count_distinct(cloud: Cloud) -> list[int]:
    """How many different points each layer has: at layer 0, as many as there are different last tokens."""
    return [len(distinct_rows(points)) for points in cloud.points]


def spectral_profiles(cloud: Cloud, scaling: Scaling, clouds: GaussianClouds) -> dict[str, list[Scalar]]:
    """`SPECTRAL` at every layer, jackknifed over prompts."""
    profiles: dict[str, list[Scalar]] = {name: [] for name in SPECTRAL}
    for points, null in zip(cloud.points, layer_null_statistics(cloud.points, scaling, clouds), strict=True):
        for name, scalar in zip(SPECTRAL, _spectral_scalars(cloud, points, null, scaling), strict=True):
            profiles[name].append(scalar)
    return profiles


def _spectral_scalars(cloud: Cloud, points: np.ndarray, null: np.ndarray, scaling: Scaling) -> list[Scalar]:
    statistics = gram_statistics(smaller_gram(scaled(points, scaling)))
    if np.isnan(statistics).any():
        return [
            Scalar.undefined(ALL_ALIKE, UNITS[name], underpowered=True, meaning=MEANINGS[name], **cloud.counted)
            for name in SPECTRAL
        ]
    deleted = deletions(points, scaling, cloud.units)
    none = f"at a bound, or undefined, when a {cloud.unit} is left out"
    scalars = []
    for i, (name, bounds) in enumerate(zip(SPECTRAL, spectral_intervals(statistics, deleted), strict=True)):
        method = f"{deleted.method}, {'log' if name == 'participation_ratio' else 'logit'} scale"
        null_of_name = null_from_draws(NULL_NAMES[scaling], null[:, i])
        scalars.append(
            Scalar.of(
                statistics[i], UNITS[name], Interval.of(bounds, method, none), null_of_name, meaning=MEANINGS[name],
                **cloud.counted,
            )
        )  # fmt: skip
    return scalars


def spectrum_table(points: np.ndarray, scaling: Scaling, clouds: GaussianClouds) -> Table:
    """The leading eigenvalue shares of one layer beside those of its null."""
    spectra = eigenvalues(scaled(points, scaling)), null_spectra(points, scaling, clouds)
    shares, null_shares = (ratio(spectrum, spectrum.sum(axis=-1, keepdims=True)) for spectrum in spectra)
    n = min(N_SHOWN, len(shares), null_shares.shape[1])
    nulls = [null_from_draws("", null_shares[:, i]) for i in range(n)]
    null = number_columns("null", np.array([x.value for x in nulls]), np.array([x.band for x in nulls]).T)
    columns = {"component": np.arange(1, n + 1), "share": shares[:n], **null}
    units = {"component": "component", "share": "fraction", "null": "fraction"}
    return Table(columns, units, f"Variance shares of the first {n} principal components at the primary layer.")


def dimension_profile(cloud: Cloud, scaling: Scaling, seed: int) -> list[Scalar]:
    """TwoNN at every layer, of one prompt of each cluster; every layer meets the same random draws."""
    cloud = cloud.one_of_each_cluster(np.random.default_rng([seed, 2]))
    rows = (points if scaling == "centred" else scaled(points, scaling) for points in cloud.points)
    return [_dimension(cloud, points, np.random.default_rng(seed)) for points in rows]


def _dimension(cloud: Cloud, points: np.ndarray, rng: np.random.Generator) -> Scalar:
    found = intrinsic_dimension(points, cloud.units, N_DIMENSION_NULLS, rng)
    name = "Gaussian cloud of the same sample covariance"
    null = null_from_draws(name, found.null_draws) if len(found.null_draws) else str(found.interval)
    meaning = MEANINGS["intrinsic_dimension"]
    return Scalar.of(found.value, "dimensions", found.interval, null, meaning=meaning, **cloud.counted)
