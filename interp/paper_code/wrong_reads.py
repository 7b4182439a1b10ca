"""The wrong reads themselves, as pure functions of the right tensors. Never a default of anything.

Each takes what was captured correctly and gives what the published code would have taken for it: a view of
the same numbers, or other numbers under the same name.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Num

from interp.families import Projection

N_SAMPLED_TOKENS = 100
"""Tokens that the published code compares in a layer."""

REFERENCE_LAYER: Literal[-1] = -1
"""What the published code calls the last layer, compared with layer numbers that start at 0."""

_PROJECTIONS: tuple[Projection, ...] = ("q", "k", "v")

Heads = Num[np.ndarray, "*row head d_head"]


class FusedRead(NamedTuple):
    """Queries, keys and values, each `[..., head, d_head]`."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


class Origin(NamedTuple):
    """What one vector of the wrong view really is."""

    projection: Projection
    head: int


def reference_qkv(q: Heads, k: Heads, v: Heads) -> FusedRead:
    """A fused projection, laid out `(head, 3, d_head)`, read as `(3, head, d_head)`.

    Heads stay whole; which head and which projection they belong to is lost (`fused_origin` tells).
    """
    fused = np.stack([q, k, v], axis=-2)
    wrong = fused.reshape(*fused.shape[:-3], 3, fused.shape[-3], fused.shape[-1])
    return FusedRead(wrong[..., 0, :, :], wrong[..., 1, :, :], wrong[..., 2, :, :])


def fused_origin(n_heads: int, which: Projection) -> tuple[Origin, ...]:
    """What the vectors really are that the view `(3, head, d_head)` takes for the heads of one projection.

    Head h of part c is block b = c·n + h of the module's output, and block b is part b mod 3 of head b div 3.
    """
    first = _PROJECTIONS.index(which) * n_heads
    return tuple(Origin(_PROJECTIONS[b % 3], b // 3) for b in range(first, first + n_heads))


def reference_heads(
    kv: Num[np.ndarray, "*row kv_head d_head"], n_heads: int
) -> Num[np.ndarray, "*row n_heads d_fragment"]:
    """The projection of shared KV heads cut into as many pieces as there are query heads.

    Every piece is a fragment of one KV head, of d_head divided by the number of query heads that share it.
    """
    return kv.reshape(*kv.shape[:-2], n_heads, -1)


def reference_keys(
    embeddings: Num[np.ndarray, "vocab d_model"], n_layers: int, rng: np.random.Generator
) -> list[Num[np.ndarray, "token d_model"]]:
    """What is taken for the keys of each layer: embeddings of random tokens, with replacement.

    No layer enters them: they are drawn anew from one matrix.
    """
    return [embeddings[rng.integers(len(embeddings), size=N_SAMPLED_TOKENS)] for _ in range(n_layers)]
