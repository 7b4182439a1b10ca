"""Prompts that share their wording: copies, fillings of one template, stretches of one document.

The similarity of two prompts is the share of pairs of neighbouring tokens that they have in common,

    |A ∩ B| / max(|A|, |B|)        A, B: the sets of pairs of either prompt

which is 1 for copies, about the share of tokens outside the slots for two fillings of a template, and the share of the
overlap for two stretches of a document. Two independent texts of 20 to 60 tokens share a few per cent. Prompts of at
least `THRESHOLD` similarity are linked, and linked prompts are one cluster (single linkage: a chain of links is one
cluster too). Pairs that more than half of the prompts hold distinguish none of them (a chat template, a header, the
frame of the only template there is) and are left out; prompts of the same tokens are always in one cluster.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from scipy import sparse
from scipy.sparse.csgraph import connected_components

THRESHOLD = 0.5
"""Similarity from which two prompts are in one cluster."""

_COMMON = 0.5
"""Share of the prompts that hold a pair, above which the pair is left out."""

_AT_ONCE = 200
"""Prompts compared with all others at once: bounds the memory."""


def linked(
    ids: Sequence[Int[np.ndarray, " _pos"]], thresholds: Sequence[float] = (THRESHOLD,)
) -> dict[float, Int[np.ndarray, " prompt"]]:
    """At each threshold the cluster of every prompt of token ids, numbered in the order of their first prompts."""
    copies = _copies(ids)
    first = np.unique(copies, return_index=True)[1]
    row, other, share = _similar(_pairs([ids[i] for i in first], np.bincount(copies)), min(thresholds))
    found = {}
    for threshold in thresholds:
        near = share >= threshold
        links = (np.ones(near.sum()), (row[near], other[near]))
        graph = sparse.csr_array(links, shape=(len(first), len(first)))
        found[threshold] = in_order(connected_components(graph, directed=False)[1][copies])
    return found


def in_order(names: np.ndarray) -> Int[np.ndarray, " prompt"]:
    """Any names of clusters as numbers, in the order of their first prompts."""
    _, first, code = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code]


def _copies(ids: Sequence[np.ndarray]) -> Int[np.ndarray, " prompt"]:
    """Which distinct sequence of tokens every prompt is."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(np.asarray(x, dtype=np.int64).tobytes(), len(known)) for x in ids])


def _pairs(ids: Sequence[np.ndarray], n_copies: Int[np.ndarray, " prompt"]) -> sparse.csr_matrix:
    """One row per prompt, one column per pair of neighbours that is not too common; 1 where the prompt has it."""
    base = 1 + max(int(x.max(initial=0)) for x in ids)
    sets = [np.unique(x[:-1].astype(np.int64) * base + x[1:]) for x in ids]
    names, column = np.unique(np.concatenate(sets), return_inverse=True)
    ends = np.cumsum([0, *map(len, sets)])
    found = sparse.csr_matrix((np.ones(len(column), dtype=np.int32), column, ends), shape=(len(sets), len(names)))
    is_rare = np.asarray(found.T @ n_copies).ravel() <= _COMMON * n_copies.sum()
    return sparse.csr_matrix(found[:, np.flatnonzero(is_rare)])


def _similar(pairs: sparse.csr_matrix, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two prompts and their similarity, for every two that are at least so similar."""
    size = np.diff(pairs.indptr)
    found = []
    for start in range(0, len(size), _AT_ONCE):
        near = sparse.coo_matrix(pairs[start : start + _AT_ONCE] @ pairs.T)
        later = near.row + start < near.col
        row, other = near.row[later] + start, near.col[later]
        share = near.data[later] / np.maximum(size[row], size[other])
        kept = share >= least
        found.append((row[kept], other[kept], share[kept]))
    row, other, share = map(np.concatenate, zip(*found, strict=True))
    return row, other, share
