"""What a cloud of points gives where there is nothing to find: Gaussian clouds of the same size.

Centred principal components are compared with independent Gaussian columns, each with its own variance: what is
left is the share that size and loud columns alone produce. Z-scored ones are compared with the standard
Gaussian cloud of the same rows and (varying) columns. Where prompts come in clusters, so do the rows of a null cloud:
each column is as alike within clusters as the measured one is. Rows are independent even where the measured ones come
in sequences, so for sequences its band is on the narrow side.

Every layer meets the same draws, so that differences between layers are never differences of luck.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.cosines import gaussian_sets
from interp.statistics.ratio import ratio
from interp.statistics.spectra import (
    Scaling,
    centred_gram,
    constant_columns,
    eigenvalues,
    gram_eigenvalues,
    gram_statistics,
    scaled,
    smaller_gram,
    spectral_statistics,
)


@dataclass(frozen=True)
class GaussianClouds:
    """`n_draws` standard Gaussian clouds of one shape, given out with any columns' deviations.

    Drawn in float32 (spectra of noise do not need more) from `seed`, again for each use. Where they have more rows
    than columns their scatter matrices are drawn instead, from the Wishart distribution that they follow. `clusters`
    says which cluster each row is of, where rows are of clusters.
    """

    n_rows: int
    n_features: int
    n_draws: int
    seed: int
    clusters: Int[np.ndarray, " row"] | None = None

    def spectra(self, deviation: Float[np.ndarray, " feature"]) -> Float[np.ndarray, "draw axis"]:
        """Eigenvalues of the centred clouds whose columns have these standard deviations, largest first."""
        n_axes = max(1, min(self.n_rows - 1, self.n_features))
        return gram_eigenvalues(np.concatenate(list(self.grams(deviation[None]))))[:, :n_axes]

    def grams(self, deviations: Float[np.ndarray, "layer feature"]) -> Iterator[Float[np.ndarray, "layer side side"]]:
        """Draw by draw, of every layer: inner products of the centred rows, or of the columns where they are fewer."""
        if self.n_features < self.n_rows:
            rng = np.random.default_rng(self.seed)
            for _ in range(self.n_draws):  # Σ y yᵀ of the rows of a standard cloud about their mean
                (factor,) = gaussian_sets(self.n_features, self.n_rows - 1, 1, rng)
                yield factor @ factor.T * (deviations[:, :, None] * deviations[:, None, :])
        else:
            for cloud in self.clouds():
                weighted = (cloud * weight for weight in deviations.astype(np.float32))
                yield centred_gram(np.array([rows @ rows.T for rows in weighted], dtype=np.float64))

    def clouds(self) -> Iterator[Float[np.ndarray, "row feature"]]:
        """The standard clouds, one by one."""
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_draws):
            yield rng.standard_normal((self.n_rows, self.n_features), dtype=np.float32)

    def like(self, rows: np.ndarray) -> Iterator[Float[np.ndarray, "row feature"]]:
        """Clouds whose columns have the deviations of these rows, and as much of them between the clusters."""
        if self.clusters is None:
            deviation = _deviation(rows).astype(np.float32)
            yield from (cloud * deviation for cloud in self.clouds())
            return
        code = np.unique(self.clusters, return_inverse=True)[1]
        between, within = _components(np.asarray(rows, dtype=np.float64), code)
        rng = np.random.default_rng([self.seed, 1])
        for cloud in self.clouds():
            yield cloud * within + rng.standard_normal((code.max() + 1, self.n_features))[code] * between


def null_spectra(rows: np.ndarray, scaling: Scaling, clouds: GaussianClouds) -> Float[np.ndarray, "draw axis"]:
    """Spectra of Gaussian clouds matched to `rows`: in column deviations if centred, in living columns if z-scored."""
    if clouds.clusters is not None:
        return np.array([eigenvalues(scaled(cloud, scaling)) for cloud in clouds.like(rows)])
    if scaling == "centred":
        return clouds.spectra(_deviation(rows))
    n_alive = int((~constant_columns(rows)).sum())
    return _standardised_spectra(clouds.n_rows, max(1, n_alive), clouds.n_draws, clouds.seed)


def layer_null_statistics(
    points: Num[np.ndarray, "layer row feature"], scaling: Scaling, clouds: GaussianClouds
) -> Float[np.ndarray, "layer draw statistic"]:
    """`SPECTRAL` of the `null_spectra` of every layer; each draw is made once for all of them."""
    if clouds.clusters is not None:
        grams = ([smaller_gram(scaled(cloud, scaling)) for cloud in clouds.like(rows)] for rows in points)
        return np.array([gram_statistics(np.array(of_layer)) for of_layer in grams])
    if scaling == "centred":
        grams = clouds.grams(np.array([_deviation(rows) for rows in points]))
        return np.array([gram_statistics(of_draw) for of_draw in grams]).swapaxes(0, 1)
    return np.array([spectral_statistics(null_spectra(rows, scaling, clouds)) for rows in points])


def _components(
    rows: Float[np.ndarray, "row feature"], code: Int[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, " feature"], Float[np.ndarray, " feature"]]:
    """Deviations of every column between and within clusters, by the analysis of variance; they add up to its own.

    One cluster, or one for each row, tells no two kinds apart: rows are then as independent as without clusters.
    """
    counts = np.bincount(code)
    n, n_clusters = len(code), len(counts)
    if n_clusters in (1, n):
        return np.zeros(rows.shape[1]), _deviation(rows)
    centred = rows - rows.mean(axis=0)
    means = np.array([centred[code == cluster].mean(axis=0) for cluster in range(n_clusters)])
    within = np.square(centred - means[code]).sum(axis=0) / (n - n_clusters)
    size = (n - np.square(counts).sum() / n) / (n_clusters - 1)
    between = ((counts @ np.square(means) / (n_clusters - 1) - within) / size).clip(0)
    share = ratio(between, between + within)
    deviation = centred.std(axis=0)
    return deviation * np.sqrt(np.nan_to_num(share)), deviation * np.sqrt(1 - np.nan_to_num(share))


def _deviation(rows: np.ndarray) -> Float[np.ndarray, " feature"]:
    return np.asarray(rows, dtype=np.float64).std(axis=0)


@lru_cache(maxsize=8)
def _standardised_spectra(n_rows: int, n_features: int, n_draws: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n_axes = max(1, min(n_rows - 1, n_features))
    spectra = np.empty((n_draws, n_axes))
    for i in range(n_draws):
        cloud = scaled(rng.standard_normal((n_rows, n_features)), "zscored")
        spectra[i] = gram_eigenvalues(smaller_gram(cloud))[:n_axes]
    spectra.setflags(write=False)
    return spectra


def cloud_of_same_covariance(
    spectrum: Float[np.ndarray, " axis"], n_rows: int, rng: np.random.Generator
) -> Float[np.ndarray, "row axis"]:
    """A Gaussian cloud given that the scatter of its rows has exactly this spectrum, in principal coordinates.

    With centred rows U S Vᵀ, rows of a Gaussian cloud have a U that is uniform over all orthonormal frames about the
    mean, whatever the population covariance. So U is drawn anew and S is kept: flat, structureless, and equally
    valid with fewer rows than features, where drawing from the sample covariance would not be (75 isotropic rows
    in 1,024 dimensions read 127 by TwoNN; redrawn from their sample covariance about 32, this way about 126).
    """
    normal = rng.standard_normal((n_rows, len(spectrum)))
    frame, upper = np.linalg.qr(normal - normal.mean(axis=0))
    return frame * np.sign(np.diagonal(upper)) * np.sqrt(spectrum)
