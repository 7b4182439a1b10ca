"""The J-space of a depth: the directions of the residual stream that the logits of tokens depend on most.

With J the mean derivative of the final stream by the stream of a depth (the Jacobian lens) and W the directions of the
outcomes (else of all tokens) at the final norm, above their mean, the J-space of rank r are the leading r right
singular directions of W J: eigenvectors of the Gram matrix Jᵀ Wᵀ W J.

Source: "The Workspace Survives Where the Circuit Dies" (2026); Gurnee et al. (2026).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.statistics.ratio import ratio

HELD = 0.9
"""Share of the Gram matrix's trace that the directions of the spectrum's own rank hold."""

Basis = Float[np.ndarray, "feature axis"]


@dataclass(frozen=True)
class Spectrum:
    """The eigenvectors `[feature, axis]` of a Gram matrix, largest eigenvalue first, and the eigenvalues."""

    values: Float[np.ndarray, " axis"]
    vectors: Basis

    @classmethod
    def of(cls, gram: Float[np.ndarray, "feature feature"]) -> "Spectrum":
        values, vectors = np.linalg.eigh(gram.astype(np.float64))
        return cls(values[::-1].clip(0.0), vectors[:, ::-1])

    @property
    def rank(self) -> int:
        """How many directions hold `HELD` of the trace."""
        held = np.cumsum(self.values) / max(float(self.values.sum()), np.finfo(float).tiny)
        return min(int(np.searchsorted(held, HELD)) + 1, len(self.values))

    def space(self, rank: int) -> Basis:
        return self.vectors[:, :rank]


def shares(vectors: Float[np.ndarray, "vector feature"], space: Basis) -> Float[np.ndarray, " vector"]:
    """The share of each vector's squared length that lies in a subspace; NaN of vectors without length."""
    return ratio(np.square(vectors @ space).sum(axis=1), np.square(vectors).sum(axis=1))
