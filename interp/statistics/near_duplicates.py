"""Prompts that share their wording: copies, fillings of one template, stretches of one document.

The similarity of two prompts is the share of pairs of neighbouring tokens that they have in common,

    |A ∩ B| / max(|A|, |B|)        A, B: the sets of pairs of either prompt

which is 1 for copies, about the share of tokens outside the slots for two fillings of a template, and the share of the
overlap for two stretches of a document. Two independent texts of 20 to 60 tokens share a few per cent. Prompts of at
least `THRESHOLD` similarity are linked, and linked prompts are one cluster (single linkage: a chain of links is one
cluster too). Pairs that all prompts hold distinguish none of them (a chat template, the frame of the only template
there is) and are left out; those of a template that most prompts share are not, since these prompts would then count as
independent beside the others. Prompts of the same tokens are always in one cluster.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int
from scipy import sparse
from scipy.sparse.csgraph import connected_components

THRESHOLD = 0.5
"""Similarity from which two prompts are in one cluster."""

_AT_ONCE = 200
"""Prompts compared with all others at once: bounds the memory."""


def linked(
    ids: Sequence[Int[np.ndarray, " _pos"]], thresholds: Sequence[float] = (THRESHOLD,)
) -> dict[float, Int[np.ndarray, " prompt"]]:
    """At each threshold the cluster of every prompt of token ids, numbered in the order of their first prompts."""
    copies = _copies(ids)
    first = np.unique(copies, return_index=True)[1]
    every = np.arange(len(first))
    found = dict.fromkeys(thresholds, every)
    for row, other, share in _similar(_pairs([ids[i] for i in first]), min(thresholds)):
        for threshold, names in found.items():
            near, (_, of_name) = share >= threshold, np.unique(names, return_index=True)
            ends = np.concatenate([every, row[near]]), np.concatenate([of_name[names], other[near]])
            graph = sparse.csr_array((np.ones(len(ends[0])), ends), shape=(len(every), len(every)))
            found[threshold] = connected_components(graph, directed=False)[1]
    return {threshold: in_order(names[copies]) for threshold, names in found.items()}


def in_order(names: np.ndarray) -> Int[np.ndarray, " prompt"]:
    """Any names of clusters as numbers, in the order of their first prompts."""
    _, first, code = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[code]


def _copies(ids: Sequence[np.ndarray]) -> Int[np.ndarray, " prompt"]:
    """Which distinct sequence of tokens every prompt is."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(np.asarray(x, dtype=np.int64).tobytes(), len(known)) for x in ids])


def _pairs(ids: Sequence[np.ndarray]) -> sparse.csr_matrix:
    """One row per prompt, one column per pair of neighbours that not all prompts have; 1 where the prompt has it."""
    base = 1 + max(int(x.max(initial=0)) for x in ids)
    sets = [np.unique(x[:-1].astype(np.int64) * base + x[1:]) for x in ids]
    names, column = np.unique(np.concatenate(sets), return_inverse=True)
    ends = np.cumsum([0, *map(len, sets)])
    found = sparse.csr_matrix((np.ones(len(column), dtype=np.int32), column, ends), shape=(len(sets), len(names)))
    return sparse.csr_matrix(found[:, np.bincount(column) < len(sets)])


def _similar(pairs: sparse.csr_matrix, least: float) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Two prompts and their similarity, for every two that are at least so similar; some of the prompts at a time."""
    size = np.diff(pairs.indptr)
    for start in range(0, len(size), _AT_ONCE):
        rest = sparse.csr_matrix(pairs[start:])
        near = sparse.coo_matrix(rest[:_AT_ONCE] @ rest.T)
        later = near.row < near.col
        row, other = near.row[later] + start, near.col[later] + start
        share = near.data[later] / np.maximum(size[row], size[other])
        kept = share >= least
        yield row[kept], other[kept], share[kept]
