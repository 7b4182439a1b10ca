"""W_QK = W_Q W_Kᵀ, the bilinear form by which a head compares inputs: how many directions it uses.

Attention is unchanged by W_Q → W_Q R, W_K → W_K R⁻ᵀ for any invertible R (under rotary embedding: for those that
commute with its rotations), and so are the singular values σ of W_QK; cosines of the columns of W_K are not. With
W_Q = A S and W_K = B T (A, B orthonormal; S, T of d_head × d_head) they are those of S Tᵀ, and the d_model × d_model
matrix is never formed.

    effective rank   2^H, H the entropy in bits of σ / Σσ      (Roy and Vetterli 2007), 1 to d_head
    participation ratio   (Σσ²)² / Σσ⁴                         weighs the large ones more
    top share   σ₁² / Σσ²

Biases, normalisation of queries and keys, and rotary embedding are not in W_QK: it is the form at equal positions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.information import entropy_bits
from interp.statistics.cosines import Reference, gaussian_sets
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.table import Table

from ..measures.key_cosines import over_heads
from .quantities import QUANTITIES

SPECTRAL = ("effective_rank", "participation_ratio", "top_share")
"""The three statistics, in the order of the last axis of every array of them."""

_DEPENDENT = 1e-3
"""Ratio of the diagonal of R below which inner products, which square it, would cost digits that can be seen."""


def product_singular_values(
    queries: Float[np.ndarray, "*batch d_model d_head"], keys: Float[np.ndarray, "*batch d_model d_head"]
) -> Float[np.ndarray, "*batch axis"]:
    """Singular values of queries @ keysᵀ, largest first; at most d_head of them."""
    left, right = (_triangular(np.asarray(w, dtype=np.float64)) for w in (queries, keys))
    return np.linalg.svd(left @ np.swapaxes(right, -1, -2), compute_uv=False)


def _triangular(weights: Float[np.ndarray, "*batch d_model d_head"]) -> Float[np.ndarray, "*batch axis d_head"]:
    """R of the QR decomposition: by Cholesky from inner products where columns are far from dependent, else by QR."""
    if weights.shape[-2] >= weights.shape[-1]:
        try:
            lower = np.linalg.cholesky(np.swapaxes(weights, -1, -2) @ weights)
        except np.linalg.LinAlgError:
            return np.asarray(np.linalg.qr(weights, mode="r"))
        diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
        if (diagonal.min(axis=-1) > _DEPENDENT * diagonal.max(axis=-1)).all():
            return np.swapaxes(lower, -1, -2)
    return np.asarray(np.linalg.qr(weights, mode="r"))


def spectral(singular: Float[np.ndarray, "*batch axis"]) -> Float[np.ndarray, "*batch statistic"]:
    """`SPECTRAL` of singular values; NaN where all are zero."""
    squares = np.square(singular)
    total = squares.sum(axis=-1)
    found = [
        np.exp2(entropy_bits(ratio(singular, singular.sum(axis=-1, keepdims=True)))),
        ratio(np.square(total), np.square(squares).sum(axis=-1)),
        ratio(squares.max(axis=-1), total),
    ]
    return np.stack(found, axis=-1)


@dataclass(frozen=True)
class QueryKey:
    """Singular values of W_QK for every query head, and those of Gaussian weights."""

    singular: Float[np.ndarray, "layer head axis"]
    null: Float[np.ndarray, "draw axis"]
    n_kv_heads: int

    @classmethod
    def of(
        cls,
        queries: Float[np.ndarray, "layer head d_model d_head"],
        keys: Float[np.ndarray, "layer kv_head d_model d_head"],
        n_draws: int,
        rng: np.random.Generator,
    ) -> "QueryKey":
        """Every query head with the KV head it reads; a group of query heads shares one."""
        per_group = queries.shape[1] // keys.shape[1]
        singular = [
            product_singular_values(q, np.repeat(k, per_group, axis=0)) for q, k in zip(queries, keys, strict=True)
        ]
        d_model, d_head = keys.shape[2:]
        # rows of a set are columns of a projection, and only their inner products matter
        left, right = (gaussian_sets(d_head, d_model, n_draws, rng) for _ in range(2))
        null = product_singular_values(np.swapaxes(left, 1, 2), np.swapaxes(right, 1, 2))
        return cls(np.array(singular), null, keys.shape[1])

    def means(self) -> tuple[dict[str, Estimates], dict[str, Estimates]]:
        """Means over the heads of each layer, and of all layers; query heads that share a KV head count once."""
        name = f"Gaussian W_Q and W_K of the same shape (d_head = {self.null.shape[1]})"
        of_null = spectral(self.null)
        references = {f"w_qk_{statistic}": Reference(name, of_null[:, i]) for i, statistic in enumerate(SPECTRAL)}
        return over_heads(spectral(self.singular), references, self.n_kv_heads)

    def spectrum_table(self) -> Table:
        """Shares σ² / Σσ² along the spectrum: mean over the heads of each layer, their extremes, and the null."""
        squares = [np.square(singular) for singular in (self.singular, self.null)]
        shares, null = (ratio(each, each.sum(axis=-1, keepdims=True)) for each in squares)
        n_layers, _, n_axes = shares.shape
        share = Estimates(shares.mean(axis=1).ravel()).permuted(np.tile(null, n_layers), asks="nothing")
        columns = {
            "layer": np.repeat(np.arange(n_layers), n_axes), "axis": np.tile(np.arange(n_axes), n_layers),
            "share": share, "share_min": shares.min(axis=1).ravel(), "share_max": shares.max(axis=1).ravel(),
        }  # fmt: skip
        caption = "Shares of the singular directions of W_QK, strongest first; null of one head."
        return QUANTITIES.table(columns, caption, axis="index")
