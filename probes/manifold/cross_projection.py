"""Do prompts of different domains vary along the same axes, or each along its own?

Every domain's set (equal numbers in each fifth of the entropy, as in the collapse) is cut into two halves. The first
plane of one half of domain A is applied to the other half of domain B, about B's own mean:

    share(A, B) = variance of B in A's plane / variance of B        shared = mean share(A ≠ B) / mean share(A, A)

so that no plane is evaluated on prompts that it was fitted on, and 1 means common axes. The null permutes domain labels
within entropy and length and draws all sets again.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.spectra import centred_gram, leading_vectors, scaled

from ..measures.profiles import Part
from .collapse import Pool, Spectra
from .quantities import QUANTITIES

N_SPLITS = 4
MAX_PERMUTATIONS = 199
N_PLANE = 2

CAPTION = (
    "Share of the variance of one domain's prompts (`of`) in the first plane of other prompts of the same or another "
    "domain (`plane_of`), at equal numbers and entropy, at the primary layer; the mean over splits, the null under "
    "permuted labels."
)


def plane_shares(
    gram: Float[np.ndarray, "row row"], sets: Int[np.ndarray, "set member"], splits: Bool[np.ndarray, "split member"]
) -> Float[np.ndarray, "plane prompts"]:
    """share(A, B) of every ordered pair of domains, A the plane's and B the prompts', the mean over splits.

    `splits` say for each position of any set whether it is in the first half.
    """
    fitted = np.stack([sets[:, first] for first in splits], axis=1)
    held_out = np.stack([sets[:, ~first] for first in splits], axis=1)
    weights = _planes(gram, fitted)
    total = np.trace(centred_gram(_products(gram, held_out, held_out)), axis1=-2, axis2=-1)
    # weights sum to zero, so the mean of the fitted half drops out; that of the held-out half is subtracted here
    scores = _products(gram, held_out, fitted[:, None]) @ weights[:, None]
    variance = np.square(scores - scores.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))
    return ratio(variance, total).mean(axis=-1)


def _products(gram: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    return gram[rows[..., :, None], others[..., None, :]]


def _planes(gram: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Weights on the fitted rows that give two orthonormal directions of their centred cloud."""
    centred = centred_gram(_products(gram, fitted, fitted))
    vectors = leading_vectors(centred, N_PLANE)
    squared = (vectors * (centred @ vectors)).sum(axis=-2, keepdims=True)
    lengths = np.sqrt(np.clip(squared, 0.0, None))
    alive = lengths > 1e-9 * lengths.max(axis=-1, keepdims=True)
    weights = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=alive)
    return weights - weights.mean(axis=-2, keepdims=True)


def cross_projection(pool: Pool, spectra: Spectra, n_permutations: int, rng: np.random.Generator) -> Part:
    """The table of plane shares and the scalar `shared_plane`."""
    centred = scaled(spectra.rows, spectra.scaling)
    gram = centred @ centred.T
    splits = np.array([rng.permutation(pool.n) < pool.n // 2 for _ in range(N_SPLITS)])
    found = plane_shares(gram, pool.sets(pool.labels)[1:], splits)
    shared = _shared(found)
    if not np.isfinite(found).all() or np.isnan(shared):
        return Part(notes=("No cross-projection: in some set every row is the same point.",))
    labellings = pool.permutations(min(n_permutations, MAX_PERMUTATIONS), rng)
    null = np.array([plane_shares(gram, pool.sets(labels)[1:], splits) for labels in labellings])
    permuted = np.array([_shared(shares) for shares in null])
    p = maximum_statistic_p(-np.array([shared]), -permuted[:, None])
    estimate = Estimates(np.array([shared]), about={"n": pool.n}, words={"n_splits": str(N_SPLITS)})
    n = len(pool.domains)
    share = Estimates(found.ravel()).permuted(null.reshape(len(null), -1), asks="nothing")
    columns = {"plane_of": np.repeat(pool.domains, n), "of": np.tile(pool.domains, n), "share": share}
    return Part(
        QUANTITIES.scalars({"shared_plane": estimate.permuted(permuted[:, None], p)}),
        {"cross_projection": QUANTITIES.table(columns, CAPTION)},
    )


def _shared(shares: Float[np.ndarray, "plane prompts"]) -> float:
    """Mean over pairs of different domains, relative to the mean within domains."""
    own = np.eye(len(shares), dtype=bool)
    return float(ratio(shares[~own].mean(), shares[own].mean()))
