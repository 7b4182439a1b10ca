"""The null of a cloud of points: Gaussian clouds of the same size.

Centred principal components are compared with independent Gaussian columns, each with its own variance: what is
left is the share that size and columns of large variance alone produce. Z-scored ones are compared with the standard
Gaussian cloud of the same rows and (varying) columns. Where prompts come in clusters, so do the rows of a null cloud:
each column has the measured share of its variance between clusters. Rows are independent even where the measured ones
come in sequences, so for sequences the band is on the narrow side.

All layers use the same draws.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.cosines import gaussian_sets
from interp.statistics.ratio import ratio
from interp.statistics.spectra import (
    Scaling,
    constant_columns,
    gram_eigenvalues,
    scaled,
    smaller_gram,
)

Rows = Num[np.ndarray, "row feature"]
Gram = Float[np.ndarray, "side side"]


@dataclass(frozen=True)
class GaussianClouds:
    """`n_draws` standard Gaussian clouds of one shape, scaled to the columns of any layer.

    Drawn in float32 (spectra of noise do not need more) from `seed`, again for each use. Of clouds with more rows than
    columns the scatter matrices are drawn instead, from their Wishart distribution. `clusters` has the cluster of each
    row, where there are any.
    """

    n_rows: int
    n_features: int
    n_draws: int
    seed: int
    clusters: Int[np.ndarray, " row"] | None = None

    def nulls(
        self, of: Callable[[Gram], np.ndarray], layers: Sequence[Rows] | np.ndarray, scaling: Scaling
    ) -> Float[np.ndarray, "layer draw *result"]:
        """A statistic `of` the inner products of the scaled rows (or columns, if fewer) of every layer's null clouds.

        Null clouds match the deviations of the columns if these are centred, and the number that vary if z-scored.
        """
        if scaling == "zscored" and self.clusters is None:
            n_varying = [max(1, int((~constant_columns(rows)).sum())) for rows in layers]
            found = {n: [of(gram) for gram in self._zscored(n)] for n in set(n_varying)}
            return np.array([found[n] for n in n_varying])
        return np.array([[of(gram) for gram in draw] for draw in self._grams(layers, scaling)]).swapaxes(0, 1)

    def _zscored(self, n_features: int) -> Iterator[Gram]:
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_draws):
            yield smaller_gram(scaled(rng.standard_normal((self.n_rows, n_features)), "zscored"))

    def _grams(self, layers: Sequence[Rows] | np.ndarray, scaling: Scaling) -> Iterator[Iterator[Gram]]:
        """Draw by draw, the inner products of a cloud for each layer."""
        if self.clusters is not None or self.n_rows <= self.n_features:
            for clouds in self.like(layers):
                yield (smaller_gram(scaled(cloud, scaling)) for cloud in clouds)
            return
        rng, deviations = np.random.default_rng(self.seed), [_deviation(rows) for rows in layers]
        for _ in range(self.n_draws):
            (factor,) = gaussian_sets(self.n_features, self.n_rows - 1, 1, rng)
            scatter = factor @ factor.T  # Σ y yᵀ of the rows of a standard cloud about their mean
            yield (scatter * np.outer(deviation, deviation) for deviation in deviations)

    def like(self, layers: Sequence[Rows] | np.ndarray) -> Iterator[Iterator[Rows]]:
        """Draw by draw, a cloud for each layer: columns have its deviations, with its share between the clusters."""
        rng, shape = np.random.default_rng(self.seed), (self.n_rows, self.n_features)
        standard = (rng.standard_normal(shape, dtype=np.float32) for _ in range(self.n_draws))
        if self.clusters is None:
            deviations = [_deviation(rows).astype(np.float32) for rows in layers]
            for cloud in standard:
                yield map(partial(np.multiply, cloud), deviations)
            return
        code = np.unique(self.clusters, return_inverse=True)[1]
        parts = [_components(np.asarray(rows, dtype=np.float64), code) for rows in layers]
        of_clusters = np.random.default_rng([self.seed, 1])
        for cloud in standard:
            effects = of_clusters.standard_normal((code.max() + 1, self.n_features))[code]
            yield map(partial(_mixed, cloud, effects), parts)


def null_spectra(rows: Rows, scaling: Scaling, clouds: GaussianClouds) -> Float[np.ndarray, "draw axis"]:
    """Eigenvalues of the null clouds of one layer, largest first."""
    n_axes = max(1, min(clouds.n_rows - 1, clouds.n_features))
    return clouds.nulls(lambda gram: gram_eigenvalues(gram)[:n_axes], [rows], scaling)[0]


def _mixed(cloud: Rows, effects: Rows, parts: tuple[np.ndarray, np.ndarray]) -> Rows:
    between, within = parts
    return cloud * within + effects * between


def _components(
    rows: Float[np.ndarray, "row feature"], code: Int[np.ndarray, " row"]
) -> tuple[Float[np.ndarray, " feature"], Float[np.ndarray, " feature"]]:
    """Deviations of every column between and within clusters, by the analysis of variance; they add up to its own.

    With a single cluster, or one for each row, rows are as independent as without clusters.
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


def cloud_of_same_covariance(
    spectrum: Float[np.ndarray, " axis"], n_rows: int, rng: np.random.Generator
) -> Float[np.ndarray, "row axis"]:
    """A Gaussian cloud given that the scatter of its rows has exactly this spectrum, in principal coordinates.

    With centred rows U S Vᵀ, rows of a Gaussian cloud have a U that is uniform over all orthonormal frames about the
    mean, whatever the population covariance. So U is drawn again and S is kept, which also holds with fewer rows than
    features: 75 isotropic rows in 1,024 dimensions read 127 by TwoNN, this way about 126, redrawn from their sample
    covariance about 32.
    """
    normal = rng.standard_normal((n_rows, len(spectrum)))
    frame, upper = np.linalg.qr(normal - normal.mean(axis=0))
    return frame * np.sign(np.diagonal(upper)) * np.sqrt(spectrum)
