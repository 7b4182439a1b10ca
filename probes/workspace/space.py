"""The J-space of a depth: the directions of the residual stream that the logits of tokens depend on most.

With J the mean derivative of the final stream by the stream of a depth (the Jacobian lens) and W the directions of the
outcomes at the final norm, above their mean (of all tokens, where there are no outcomes), the rows of W J say how each
logit moves. Their leading r right singular directions, the eigenvectors of the Gram matrix Jᵀ Wᵀ W J, are the J-space
of rank r.

Source: "The Workspace Survives Where the Circuit Dies" (2026); Gurnee et al. (2026).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from interp.statistics.ratio import ratio
from interp.statistics.ridge import absolute_penalty, ridge_coefficients

from ..measures.halves import Halving

HELD = 0.9
"""Share of the Gram matrix's trace that the directions of the spectrum's own rank hold."""

PENALTY = 1e-3
"""Of the readouts in subspaces, relative to the mean squared singular value: the same in all of them."""

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


@dataclass(frozen=True)
class Decoded:
    """What a linear readout says on rows that it was not fitted on: R² of the entropy, accuracy of what survives."""

    r2: float
    accuracy: float

    @classmethod
    def of(
        cls, points: Float[np.ndarray, "row feature"], entropy: Float[np.ndarray, " row"],
        survives: Bool[np.ndarray, "row hypothesis"], halving: Halving, penalty: float = PENALTY,
    ) -> "Decoded":  # fmt: skip
        """Ridge on the fitting rows of a half split; `penalty` is relative."""
        fitted, judged = halving.apply(points)
        labels, sought = halving.apply(np.column_stack([entropy, survives]).astype(np.float64))
        weights = ridge_coefficients(fitted, labels, absolute_penalty(fitted, penalty))
        told, said = fitted @ weights, judged @ weights
        total = float(np.square(sought[:, 0]).sum())
        r2 = 1 - float(np.square(sought[:, 0] - said[:, 0]).sum()) / total if total > 0 else np.nan
        return cls(
            r2, balanced_accuracy(told[:, 1:], said[:, 1:], *(survives[x] for x in (halving.fitting, halving.judged)))
        )


def balanced_accuracy(
    told: Float[np.ndarray, "fitted hypothesis"], said: Float[np.ndarray, "judged hypothesis"],
    was: Bool[np.ndarray, "fitted hypothesis"], survives: Bool[np.ndarray, "judged hypothesis"],
) -> float:  # fmt: skip
    """Mean of the hits among surviving and ruled out, over the hypotheses that are both in both halves.

    The cut lies midway between the means of the two on the fitting rows.
    """
    known = np.all([half.any(axis=0) & ~half.all(axis=0) for half in (was, survives)], axis=0)
    if not known.any():
        return np.nan
    told, said, was, survives = (x[:, known] for x in (told, said, was, survives))
    cut = sum((told * side).sum(axis=0) / side.sum(axis=0) for side in (was, ~was)) / 2
    hits = [((said > cut) & survives).sum(axis=0) / survives.sum(axis=0),
            ((said <= cut) & ~survives).sum(axis=0) / (~survives).sum(axis=0)]  # fmt: skip
    return float(np.mean(hits))
