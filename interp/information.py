"""Entropies and divergences in bits. Distributions run along the last axis.

`0 log 0` is 0: a probability of exactly zero contributes nothing, and nothing is added inside a logarithm.
"""

import numpy as np
from jaxtyping import Float

BITS_PER_NAT = float(1.0 / np.log(2.0))


def log_softmax(logits: Float[np.ndarray, "*batch outcome"]) -> Float[np.ndarray, "*batch outcome"]:
    """Natural log-probabilities of the softmax along the last axis, in float64."""
    shifted = np.asarray(logits, dtype=np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def entropy_bits(probabilities: Float[np.ndarray, "*batch outcome"]) -> Float[np.ndarray, "*batch"]:
    """Shannon entropy −Σ p log2 p."""
    p = np.asarray(probabilities, dtype=np.float64)
    return 0.0 - np.sum(p * np.log2(p, out=np.zeros_like(p), where=p > 0), axis=-1)


def kl_bits(
    p: Float[np.ndarray, "*batch outcome"], q: Float[np.ndarray, "*batch outcome"]
) -> Float[np.ndarray, "*batch"]:
    """Kullback-Leibler divergence Σ p log2(p/q); infinite where q gives zero to what p allows."""
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    possible = p > 0
    with np.errstate(divide="ignore"):
        log_q = np.log2(q, out=np.zeros_like(p), where=possible)
    log_p = np.log2(p, out=np.zeros_like(p), where=possible)
    return np.sum(p * (log_p - log_q), axis=-1, where=possible)


def cross_entropy_bits(
    p: Float[np.ndarray, "*p_batch outcome"], log2_q: Float[np.ndarray, "*q_batch outcome"]
) -> Float[np.ndarray, "*batch"]:
    """−Σ p log2 q from log2 q; minus the entropy of p it is KL(p ‖ q). Outcomes with p = 0 contribute nothing."""
    p, log2_q = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(log2_q, dtype=np.float64))
    return 0.0 - np.multiply(p, log2_q, out=np.zeros(p.shape), where=p > 0).sum(axis=-1)


def restricted(log2_q: Float[np.ndarray, "*batch outcome"]) -> Float[np.ndarray, "*batch outcome"]:
    """log2 probabilities renormalised over the outcomes that are given."""
    log2_q = np.asarray(log2_q, dtype=np.float64)
    shifted = log2_q - log2_q.max(axis=-1, keepdims=True)
    return shifted - np.log2(np.exp2(shifted).sum(axis=-1, keepdims=True))


def total_variation(
    p: Float[np.ndarray, "*batch outcome"], q: Float[np.ndarray, "*batch outcome"]
) -> Float[np.ndarray, "*batch"]:
    """Total variation distance ½ Σ |p − q|, between 0 and 1."""
    return 0.5 * np.abs(np.asarray(p, np.float64) - np.asarray(q, np.float64)).sum(axis=-1)
