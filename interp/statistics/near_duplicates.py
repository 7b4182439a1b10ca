"""Prompts that share their wording: copies, paraphrases of one template, stretches of one document.

Two prompts are alike as far as they share pairs of neighbouring tokens,

    |A ∩ B| / max(|A|, |B|)        A, B: the sets of pairs of either prompt

which is 1 for copies, about the share of tokens outside the slots for two fillings of a template, and the share of the
overlap for two stretches of a document. Two independent texts of 20 to 60 tokens share a few per cent. Prompts that are
at least `THRESHOLD` alike are linked, and linked prompts are one cluster (single linkage: a chain of links is one
cluster too). Pairs that more than half of the prompts hold say nothing of any of them (a chat template, a header, the
frame of the only template there is) and are left out; prompts of the same tokens are always together.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Int
from scipy import sparse
from scipy.sparse.csgraph import connected_components

THRESHOLD = 0.5
"""Share of the pairs of the longer prompt that two prompts have in common to be of one cluster."""

_COMMON = 0.5
"""Share of the prompts that hold a pair, above which it tells none of them apart."""

_AT_ONCE = 500_000
"""Comparisons of two prompts at once: bounds the memory."""


def linked(
    ids: Sequence[Int[np.ndarray, " _pos"]], thresholds: Sequence[float] = (THRESHOLD,)
) -> dict[float, Int[np.ndarray, " prompt"]]:
    """At each threshold the cluster of every prompt of token ids, numbered in the order of their first prompts."""
    copies = _copies(ids)
    first = np.unique(copies, return_index=True)[1]
    row, other, share = _alike(_pairs([ids[i] for i in first], np.bincount(copies)), min(thresholds))
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
    """One row a prompt, one column a pair of neighbours that tells prompts apart; 1 where the prompt has it."""
    base = 1 + max(int(x.max(initial=0)) for x in ids)
    sets = [np.unique(x[:-1].astype(np.int64) * base + x[1:]) for x in ids]
    names, column = np.unique(np.concatenate(sets), return_inverse=True)
    ends = np.cumsum([0, *map(len, sets)])
    found = sparse.csr_matrix((np.ones(len(column), dtype=np.int32), column, ends), shape=(len(sets), len(names)))
    tells = np.asarray(found.T @ n_copies).ravel() <= _COMMON * n_copies.sum()
    return sparse.csr_matrix(found[:, np.flatnonzero(tells)])


def _alike(pairs: sparse.csr_matrix, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two prompts and how far they are alike, for every two that are at least so much.

    Two such prompts also share one of the pairs that are left of each if its `least` commonest ones, but for one, are
    taken away (prefix filtering: Chaudhuri and others, 2006). Only prompts that do are compared.
    """
    size = np.diff(pairs.indptr)
    rarest_first = np.argsort(np.bincount(pairs.indices, minlength=pairs.shape[1]), kind="stable")
    rare = sparse.csr_matrix(pairs[:, rarest_first])
    rare.sort_indices()
    place = np.arange(rare.nnz) - np.repeat(rare.indptr[:-1], size)
    rare.data = (place < np.repeat(size - np.ceil(least * size) + 1, size)).astype(np.int32)
    rare.eliminate_zeros()
    holders = sparse.csr_matrix(rare.T)
    compared = np.cumsum(rare @ np.diff(holders.indptr)) // _AT_ONCE
    found = []
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(compared)) + 1).tolist(), len(size)]):
        near = sparse.coo_matrix(rare[start:end] @ holders)
        later = near.row + start < near.col
        row, other = near.row[later] + start, near.col[later]
        shared = sparse.csr_matrix(pairs[row]).multiply(pairs[other]).sum(axis=1).A1
        share = shared / np.maximum(size[row], size[other])
        kept = share >= least
        found.append((row[kept], other[kept], share[kept]))
    row, other, share = map(np.concatenate, zip(*found, strict=True))
    return row, other, share
