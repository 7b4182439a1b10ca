"""What a cloud of points gives where there is nothing to find: Gaussian clouds of the same size.

Centred principal components are compared with independent Gaussian columns, each with its own variance: what is
left is the share that size and loud columns alone produce. Z-scored ones are compared with the standard
Gaussian cloud of the same rows and (varying) columns. Rows of a null cloud are independent even where the
measured ones come in sequences, so for sequences its band is on the narrow side.

Every layer meets the same draws, so that differences between layers are never differences of luck.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Num
from scipy import stats

from interp.findings import Null
from interp.statistics.spectra import Scaling, centred_gram, constant_columns, gram_eigenvalues, scaled

_TAIL = 0.975


@dataclass(frozen=True)
class GaussianClouds:
    """`n_draws` standard Gaussian clouds of one shape, given out with any columns' deviations.

    Drawn in float32 (spectra of noise do not need more) from `seed`, again for each use where they are wide, and
    kept as covariances where they have more rows than columns.
    """

    n_rows: int
    n_features: int
    n_draws: int
    seed: int

    def spectra(self, deviation: Float[np.ndarray, "*layer feature"]) -> Float[np.ndarray, "*layer draw axis"]:
        """Eigenvalues of the centred clouds whose columns have these standard deviations, largest first."""
        n_axes = max(1, min(self.n_rows - 1, self.n_features))
        layers = deviation.reshape(-1, self.n_features)
        found = np.empty((len(layers), self.n_draws, n_axes))
        if self.n_features < self.n_rows:
            for k, weight in enumerate(layers):
                found[k] = gram_eigenvalues(self._covariances * np.outer(weight, weight))[:, :n_axes]
        else:
            for i, cloud in enumerate(self.clouds()):
                for k, weight in enumerate(layers.astype(np.float32)):
                    weighted = cloud * weight
                    gram = (weighted @ weighted.T).astype(np.float64)
                    found[k, i] = gram_eigenvalues(centred_gram(gram))[:n_axes]
        return found.reshape(*deviation.shape[:-1], *found.shape[1:])

    @cached_property
    def _covariances(self) -> np.ndarray:
        moments = np.empty((self.n_draws, self.n_features, self.n_features))
        for i, cloud in enumerate(self.clouds()):
            centred = cloud - cloud.mean(axis=0)
            moments[i] = centred.T @ centred
        return moments

    def clouds(self) -> Iterator[Float[np.ndarray, "row feature"]]:
        """The standard clouds, one by one."""
        rng = np.random.default_rng(self.seed)
        for _ in range(self.n_draws):
            yield rng.standard_normal((self.n_rows, self.n_features), dtype=np.float32)


def null_spectra(rows: np.ndarray, scaling: Scaling, clouds: GaussianClouds) -> Float[np.ndarray, "draw axis"]:
    """Spectra of Gaussian clouds matched to `rows`: in column deviations if centred, in living columns if z-scored."""
    if scaling == "centred":
        return clouds.spectra(np.asarray(rows, dtype=np.float64).std(axis=0))
    n_alive = int((~constant_columns(rows)).sum())
    return _standardised_spectra(clouds.n_rows, max(1, n_alive), clouds.n_draws, clouds.seed)


def layer_null_spectra(
    points: Num[np.ndarray, "layer row feature"], scaling: Scaling, clouds: GaussianClouds
) -> list[Float[np.ndarray, "draw axis"]]:
    """`null_spectra` of every layer; each draw is made once for all of them."""
    if scaling == "centred":
        return list(clouds.spectra(np.array([np.asarray(rows, dtype=np.float64).std(axis=0) for rows in points])))
    return [null_spectra(rows, scaling, clouds) for rows in points]


@lru_cache(maxsize=8)
def _standardised_spectra(n_rows: int, n_features: int, n_draws: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n_axes = max(1, min(n_rows - 1, n_features))
    spectra = np.empty((n_draws, n_axes))
    for i in range(n_draws):
        cloud = scaled(rng.standard_normal((n_rows, n_features)), "zscored")
        gram = cloud @ cloud.T if n_rows <= n_features else cloud.T @ cloud
        spectra[i] = gram_eigenvalues(gram)[:n_axes]
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


def null_from_draws(name: str, draws: Float[np.ndarray, " draw"]) -> Null:
    """Mean of the draws and the interval in which 95 % of further draws would fall, from a t distribution.

    A prediction interval, mean ± t s √(1 + 1/k): with k draws it neither needs k to be large nor ends at the
    most extreme of them.
    """
    k = len(draws)
    mean, deviation = float(draws.mean()), float(draws.std(ddof=1))
    half = float(stats.t.ppf(_TAIL, k - 1)) * deviation * (1 + 1 / k) ** 0.5
    return Null(name, mean, (mean - half, mean + half))


def null_from_permutations(name: str, values: Float[np.ndarray, " permutation"]) -> Null:
    """Mean and central 95 % of a statistic over permutations."""
    low, high = np.quantile(values, [1 - _TAIL, _TAIL])
    return Null(name, float(values.mean()), (float(low), float(high)))
