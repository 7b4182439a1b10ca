"""Cosines between the vectors of a set, and those of random directions.

A set is `[vector, feature]`; its measures are means over all pairs of different vectors,

    abs      mean |cos|          signed      mean cos
    abs_centred, signed_centred  the same after the mean vector of the set is subtracted from each of them

since a direction that all share dominates the raw cosines. Random directions in d dimensions have
E|cos| = Γ(d/2) / (√π Γ((d+1)/2)), close to √(2/(πd)): 0.1 at d = 64, so a cosine is small only relative to its
dimension. Centring k vectors makes the mean cosine about −1/(k − 1).

A mean over sets is compared with draws of the same shape: k draws have the mean μ and the deviation s, and a mean
over m independent random sets falls within μ ± t(k − 1) s √(1/m + 1/k) in 95 of 100 cases.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p, t_quantile
from interp.statistics.ratio import ratio

MEASURES = ("abs", "signed", "abs_centred", "signed_centred")
"""The four measures, in the order of the last axis of every array of them."""

SMALLEST_P = 1e-6
"""No p is given below this: the t distribution is trusted only so far out."""

_DEAD = 1e-12
"""Length, relative to the longest vector of a set, below which a vector has no direction but rounding."""


def cosine_measures(
    vectors: Float[np.ndarray, "*batch vector feature"], present: Bool[np.ndarray, "*batch vector"] | None = None
) -> Float[np.ndarray, "*batch measure"]:
    """`MEASURES` of one or many sets, of the vectors that are `present` (by default all).

    Vectors without length make no pair. NaN where no pair is left, and for centred measures of fewer than three
    vectors: any two vectors are opposite once their mean is subtracted.
    """
    present = np.ones(vectors.shape[:-1], dtype=bool) if present is None else present
    kept, n_present = present[..., None], present.sum(axis=-1)[..., None, None]
    vectors = np.where(kept, np.asarray(vectors, dtype=np.float64), 0.0)
    centred = np.where(kept, vectors - vectors.sum(axis=-2, keepdims=True) / np.maximum(n_present, 1), 0.0)
    products, of_centred = (x @ np.swapaxes(x, -1, -2) for x in (vectors, centred))
    size = np.sqrt(np.linalg.diagonal(products)).max(axis=-1, keepdims=True, initial=0.0)
    measured = np.concatenate([_mean_cosines(products, size), _mean_cosines(of_centred, size)], axis=-1)
    measured[..., 2:] = np.where(n_present[..., 0] >= 3, measured[..., 2:], np.nan)
    return measured


def _mean_cosines(products: Float[np.ndarray, "*batch vector other"], size: np.ndarray) -> np.ndarray:
    """Mean |cos| and mean cos over pairs of vectors that are not tiny against `size`, from inner products."""
    length = np.sqrt(np.linalg.diagonal(products))
    alive = length > _DEAD * size
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=alive)
    cosine = products * inverse[..., None] * inverse[..., None, :]
    n_alive = alive.sum(axis=-1)
    # the cosine of each vector with itself is 1; pairs are counted in both orders
    sums = np.stack([np.abs(cosine).sum(axis=(-1, -2)), cosine.sum(axis=(-1, -2))], axis=-1) - n_alive[..., None]
    n_pairs = (n_alive * (n_alive - 1))[..., None]
    return ratio(sums, n_pairs)


def expected_abs_cosine(n_features: int) -> float:
    """E|cos| of two independent random directions, exactly."""
    half = n_features / 2
    return float(np.exp(special.gammaln(half) - special.gammaln(half + 0.5)) / np.sqrt(np.pi))


def gaussian_sets(
    n_vectors: int, n_features: int, n_draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw vector axis"]:
    """Random sets with the inner products of standard Gaussian vectors of `n_features`, in as few axes as hold them.

    With no more vectors than features they are rows of Bartlett's triangular factor of a Wishart matrix (1933), so
    the cost does not depend on the number of features.
    """
    if n_vectors > n_features:
        return rng.standard_normal((n_draws, n_vectors, n_features))
    factor = np.tril(rng.standard_normal((n_draws, n_vectors, n_vectors)), -1)
    diagonal = np.arange(n_vectors)
    factor[:, diagonal, diagonal] = np.sqrt(rng.chisquare(n_features - diagonal, (n_draws, n_vectors)))
    return factor


def random_subspace(n_features: int, n: int, rng: np.random.Generator) -> Float[np.ndarray, "feature axis"]:
    """An orthonormal basis of a uniformly random subspace of `n` dimensions."""
    return np.linalg.qr(rng.standard_normal((n_features, n)))[0]


def random_rotations(n_features: int, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n axis feature"]:
    """`n` orthogonal matrices, uniform over all of them (Mezzadri 2007: QR with the signs of R undone)."""
    q, r = np.linalg.qr(rng.standard_normal((n, n_features, n_features)))
    return q * np.sign(np.linalg.diagonal(r))[:, None, :]


@dataclass(frozen=True)
class Reference:
    """Draws of a statistic of one random set, which means over independent sets are compared with."""

    name: str
    draws: Float[np.ndarray, " draw"]

    def compared(self, found: Estimates, n_averaged: int) -> Estimates:
        """Every place compared, each a mean over `n_averaged` sets; p corrected for as many tests as places.

        The correction is Šidák's, 1 − (1 − p)ⁿ, exact for independent tests.
        """
        k, mean = len(self.draws), self.draws.mean()
        error = float(self.draws.std(ddof=1)) * (1 / n_averaged + 1 / k) ** 0.5
        null = mean + np.outer([0.0, -1.0, 1.0], np.full(len(found.value), t_quantile(k) * error))
        p = (2 * special.stdtr(k - 1, -ratio(np.abs(found.value - mean), error))).clip(SMALLEST_P, 1)
        return found.with_words(reference=self.name).against(null, 1 - (1 - p) ** len(p))


def largest_deviation_p(
    values: Float[np.ndarray, " layer"], draws: Float[np.ndarray, "draw layer"]
) -> Float[np.ndarray, " layer"]:
    """Two-sided p of every layer's value, corrected over layers by the largest deviation of the same draw.

    Deviations are from the draws' mean in units of their spread; a layer whose draws are all equal has p = NaN.
    """
    mean, spread = draws.mean(axis=0), draws.std(axis=0)
    scale = np.where(np.isfinite(values) & (spread > 0), spread, np.nan)
    return maximum_statistic_p(np.abs(values - mean) / scale, np.abs(draws - mean) / scale)
