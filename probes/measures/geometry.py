"""The shape of a cloud at every layer: spectral statistics and intrinsic dimension, with intervals and nulls."""

import numpy as np

from interp.findings import Interval
from interp.statistics.dimension import intrinsic_dimension
from interp.statistics.estimates import Estimates
from interp.statistics.jackknife import deletions, spectral_intervals
from interp.statistics.neighbours import distinct_rows
from interp.statistics.nulls import GaussianClouds, null_spectra
from interp.statistics.ratio import ratio
from interp.statistics.spectra import SPECTRAL, Scaling, eigenvalues, gram_statistics, scaled, smaller_gram
from interp.table import Table, number_columns

from .cloud import Cloud

N_DIMENSION_NULLS = 20

N_SHOWN = 50
"""Components in the table of the spectrum."""

ALL_ALIKE = "every row is the same point: nothing varies"

NULL_NAMES = {
    "centred": "independent Gaussian columns, each with its own variance, at this size",
    "zscored": "standard Gaussian cloud at this size",
}


def count_distinct(cloud: Cloud) -> list[int]:
    """How many different points each layer has: at layer 0, as many as there are different last tokens."""
    return [len(distinct_rows(points)) for points in cloud.points]


def spectral_estimates(cloud: Cloud, scaling: Scaling, clouds: GaussianClouds) -> dict[str, Estimates]:
    """`SPECTRAL` at every layer, jackknifed over prompts."""
    found = np.array([gram_statistics(smaller_gram(scaled(points, scaling))) for points in cloud.points])
    bounds, words = np.full((*found.shape, 2), np.nan), cloud.slots | {"gaussian": NULL_NAMES[scaling]}
    for layer in np.flatnonzero(~np.isnan(found).any(axis=1)):
        deleted = deletions(cloud.points[layer], scaling, cloud.units)
        bounds[layer], words["jackknife"] = spectral_intervals(found[layer], deleted), deleted.method
    nulls = clouds.nulls(gram_statistics, cloud.points, scaling)  # [layer, draw, statistic]
    found, bounds = found.T, bounds.transpose(1, 2, 0)  # [statistic, bound, layer]
    plain = (Estimates(*each, about=cloud.counted, words=words) for each in zip(found, bounds, strict=True))
    return {
        name: of.because(ALL_ALIKE).drawn(null)
        for name, of, null in zip(SPECTRAL, plain, nulls.transpose(2, 1, 0), strict=True)
    }


def spectrum_table(points: np.ndarray, scaling: Scaling, clouds: GaussianClouds) -> Table:
    """The leading eigenvalue shares of one layer beside those of its null."""
    spectra = eigenvalues(scaled(points, scaling)), null_spectra(points, scaling, clouds)
    shares, null_shares = (ratio(spectrum, spectrum.sum(axis=-1, keepdims=True)) for spectrum in spectra)
    n = min(N_SHOWN, len(shares), null_shares.shape[1])
    share = Estimates(shares[:n]).drawn(null_shares[:, :n])
    assert share.null is not None
    columns = {"component": np.arange(1, n + 1), "share": shares[:n]}
    columns |= number_columns("null", share.null[0], share.null[1:])
    units = {"component": "component", "share": "fraction", "null": "fraction"}
    return Table(columns, units, f"Variance shares of the first {n} principal components at the primary layer.")


def dimension_estimates(cloud: Cloud, scaling: Scaling, seed: int) -> Estimates:
    """TwoNN at every layer, of one prompt of each cluster; every layer meets the same random draws."""
    if cloud.clusters is not None:  # others of its cluster would be the nearest neighbours of a prompt
        cloud = cloud.one_of_each(cloud.clusters, np.random.default_rng([seed, 2]))
    rows = (points if scaling == "centred" else scaled(points, scaling) for points in cloud.points)
    found = [intrinsic_dimension(x, cloud.units, N_DIMENSION_NULLS, np.random.default_rng(seed)) for x in rows]
    nothing, none = np.full(N_DIMENSION_NULLS, np.nan), Interval(np.nan, np.nan, "none")
    intervals = [none if isinstance(x.interval, str) else x.interval for x in found]
    draws = np.array([x.null_draws if len(x.null_draws) else nothing for x in found])
    return Estimates(
        np.array([x.value for x in found]), np.array([(x.low, x.high) for x in intervals]).T,
        why=[str(x.interval) if np.isnan(x.value) else "" for x in found], about=cloud.counted,
        words={"jackknife": [x.method for x in intervals]},
    ).drawn(draws.T)  # fmt: skip
