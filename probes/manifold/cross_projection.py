"""Do prompts of different domains vary along the same axes, or each along its own?

Every domain's set (equal numbers in each fifth of the entropy, as in the collapse) is cut into two halves. The first
plane of one half of domain A is laid through the other half of domain B, about B's own mean:

    share(A, B) = variance of B in A's plane / variance of B        shared = mean share(A ≠ B) / mean share(A, A)

so that every share is of prompts that the plane was not fitted on, and 1 means common axes. The null exchanges domain
labels within entropy and length and draws all sets again.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.spectra import Scaling, centred_gram, leading_vectors, scaled
from interp.table import Table

from ..measures.profiles import Part
from .collapse import MIXED, Pool
from .quantities import QUANTITIES

N_SPLITS = 4
MAX_PERMUTATIONS = 199
N_PLANE = 2

CAPTION = (
    "Share of the variance of one domain's prompts (`of`) in the first plane of other prompts of the same or another "
    "domain (`plane_of`), at equal numbers and entropy, at the primary layer; the mean over splits, the null under "
    "permuted labels."
)


@dataclass(frozen=True)
class PlaneShares:
    """share(A, B) of every ordered pair of domains, A the plane's and B the prompts', the mean over splits."""

    shares: Float[np.ndarray, "plane prompts"]

    @property
    def shared(self) -> float:
        """Mean over pairs of different domains, relative to the mean within domains."""
        own = np.eye(len(self.shares), dtype=bool)
        within = float(self.shares[own].mean())
        return float(self.shares[~own].mean()) / within if within > 0 else float("nan")


def plane_shares(
    gram: Float[np.ndarray, "row row"], sets: Int[np.ndarray, "set member"], splits: Bool[np.ndarray, "split member"]
) -> PlaneShares:
    """`splits` say for each position of a set whether it is in the first half; they serve every set."""
    fitted = np.stack([sets[:, first] for first in splits], axis=1)
    judged = np.stack([sets[:, ~first] for first in splits], axis=1)
    weights = _planes(gram, fitted)
    total = np.trace(centred_gram(_products(gram, judged, judged)), axis1=-2, axis2=-1)
    # weights sum to zero, so the plane's own mean drops out; the judged half's goes here
    scores = _products(gram, judged, fitted[:, None]) @ weights[:, None]
    variance = np.square(scores - scores.mean(axis=-2, keepdims=True)).sum(axis=(-2, -1))
    return PlaneShares(ratio(variance, total).mean(axis=-1))


def _products(gram: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Inner products of every set of rows with every set of others."""
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


def cross_projection(
    rows: np.ndarray, pool: Pool, scaling: Scaling, per_fifth: int, n_permutations: int, rng: np.random.Generator
) -> Part:
    """The table of plane shares and the scalar `shared_plane`."""
    centred = scaled(rows, scaling)
    gram = centred @ centred.T
    quota = pool.quota(per_fifth)
    sets = _sets(pool, pool.labels, quota)
    splits = np.array([rng.permutation(len(sets[0])) < len(sets[0]) // 2 for _ in range(N_SPLITS)])
    found = plane_shares(gram, sets, splits)
    if not np.isfinite(found.shares).all() or np.isnan(found.shared):
        return Part(notes=("No cross-projection: in some set every row is the same point.",))
    n_permutations = min(n_permutations, MAX_PERMUTATIONS)
    exchanged = pool.exchanges(quota, n_permutations, rng)
    permuted = [plane_shares(gram, _sets(pool, labels, quota), splits) for labels in exchanged]
    shared = np.array([p.shared for p in permuted])
    p = np.array([(1 + (shared <= found.shared + 1e-12).sum()) / (1 + n_permutations)])
    about, words = {"n": len(sets[0])}, {"n_splits": str(N_SPLITS)}
    estimate = Estimates(np.array([found.shared]), about=about, words=words).exchanged(shared[:, None], p)
    table = _table(pool.domains, found, np.array([p.shares for p in permuted]))
    return Part(QUANTITIES.scalars({"shared_plane": estimate}), {"cross_projection": table})


def _sets(pool: Pool, labels: Shaped[np.ndarray, " row"], quota: Int[np.ndarray, " fifth"]) -> np.ndarray:
    return np.array([members for name, members in pool.sets(labels, quota).members.items() if name != MIXED])


def _table(domains: list[str], found: PlaneShares, null_shares: np.ndarray) -> Table:
    n = len(domains)
    share = Estimates(found.shares.ravel()).exchanged(null_shares.reshape(len(null_shares), -1), asks="nothing")
    return QUANTITIES.table({"plane_of": np.repeat(domains, n), "of": np.tile(domains, n), "share": share}, CAPTION)
