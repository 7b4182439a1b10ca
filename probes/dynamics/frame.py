"""The frame: how far attention and W_QK are from those of the end.

Attention rows α (this checkpoint) and β (the end), over the same keys of the same tokens:

    total variation   ½ Σ |α − β|                                        0 to 1
    Jensen-Shannon    H((α + β)/2) − H(α)/2 − H(β)/2, in bits            0 to 1

The drift of W_QK = W_Q W_Kᵀ, without biases, is 1 − cos with the end's for every head: like attention, it does not
depend on the basis of queries and keys. From d_head × d_head matrices alone: ⟨Q Kᵀ, Q' K'ᵀ⟩ = Σ (Qᵀ Q') ∘ (Kᵀ K').
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from interp.information import entropy_bits
from interp.statistics.ratio import ratio

Weights = Mapping[str, Float[np.ndarray, "layer _head d_model d_head"]]
"""The projections by letter: `q`, `k`."""


def row_distances(
    log_a: Float[np.ndarray, "*row key"], log_b: Float[np.ndarray, "*row key"]
) -> Float[np.ndarray, "distance *row"]:
    """Total variation and Jensen-Shannon divergence (bits) of rows given as log2 weights, NaN at keys unseen.

    NaN where no keys of a row were kept.
    """
    nothing = np.where(np.isnan(log_a).all(axis=-1) | np.isnan(log_b).all(axis=-1), np.nan, 0.0)
    a, b = (np.exp2(np.nan_to_num(x.astype(np.float64), nan=-np.inf)) for x in (log_a, log_b))
    middle = entropy_bits((a + b) / 2) - (entropy_bits(a) + entropy_bits(b)) / 2
    return np.stack([np.abs(a - b).sum(axis=-1) / 2, np.maximum(middle, 0.0)]) + nothing


def of_another(
    log_rows: Float[np.ndarray, "layer row head key"], units: np.ndarray
) -> Float[np.ndarray, "layer row head key"] | None:
    """The rows of the previous sequence at the same positions; None where sequences see different keys."""
    _, counts = np.unique(units, return_counts=True)
    if len(counts) < 2 or np.ptp(counts) > 0 or log_rows.shape[-1] == 0:
        return None
    moved = np.roll(log_rows, counts[0], axis=1)
    return moved if np.array_equal(np.isnan(moved[0, :, 0]), np.isnan(log_rows[0, :, 0])) else None


def drift(now: Weights, end: Weights) -> Float[np.ndarray, "layer head"]:
    """1 − cos of W_QK with the end's, of every query head; NaN where one of them is zero."""
    size = np.sqrt(_inner(now, now) * _inner(end, end))
    return np.maximum(1 - ratio(_inner(now, end), size), 0.0)


def _inner(a: Weights, b: Weights) -> Float[np.ndarray, "layer head"]:
    """Inner products of W_QK, query head by query head, each with the KV head that it reads."""
    found = []
    for layer in zip(a["q"], a["k"], b["q"], b["k"], strict=True):
        qa, ka, qb, kb = (x.astype(np.float64) for x in layer)
        queries, keys = qa.swapaxes(1, 2) @ qb, ka.swapaxes(1, 2) @ kb
        found.append(np.sum(queries * np.repeat(keys, len(queries) // len(keys), axis=0), axis=(1, 2)))
    return np.array(found)
