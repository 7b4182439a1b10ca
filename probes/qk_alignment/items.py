"""Hypotheses that stand in the context: how attention over them compares with the exact posterior.

An outcome (a token the posterior is about) is an item of a row where it stands at a position the row can see; its
weight is the sum of the attention over those positions. Only rows are compared in which every possible outcome is an
item and at least two outcomes are: recalling a pair is such a row, ruling values out is not, for what is still
possible is then what has *not* been shown. With the posterior p and the weights a of the items,

    feasible mass   Σ a over items with p > 0, out of the whole row
    KL              KL(p || a / Σ a), bits

The null relabels the items: within each row the weights move on by some number of items, one random fraction a
sequence. Source: Paper III (arXiv 2512.23752), section 2 ("attention as posterior"), which gives no formula.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.information import entropy_bits


@dataclass(frozen=True)
class ItemRows:
    """Attention over the items of comparable rows, for every shift of the item labels.

    Shift 0 is what was measured; a row with m items has m shifts and the rest of its entries are NaN.
    `uniform_kl_bits` is the KL to attention spread evenly over the items, `uniform_mass` the weight that a uniform row
    would give the possible outcomes.
    """

    row: Int[np.ndarray, " comparable"]
    kl_bits: Float[np.ndarray, "comparable shift layer head"]
    feasible_mass: Float[np.ndarray, "comparable shift layer head"]
    n_items: Int[np.ndarray, " comparable"]
    uniform_kl_bits: Float[np.ndarray, " comparable"]
    uniform_mass: Float[np.ndarray, " comparable"]


def outcome_positions(
    tokens: Int[np.ndarray, "row key"], seen: Bool[np.ndarray, "row key"], outcomes: Int[np.ndarray, " outcome"]
) -> Bool[np.ndarray, "row key outcome"]:
    """Where each outcome stands among the keys a row sees."""
    return (tokens[..., None] == outcomes) & seen[..., None]


def comparable_rows(
    stands: Bool[np.ndarray, "row key outcome"], posterior: Float[np.ndarray, "row outcome"]
) -> Int[np.ndarray, " comparable"]:
    """Rows whose possible outcomes all stand in the context, beside at least one other or one another."""
    present = stands.any(axis=1)
    return np.flatnonzero((present | (posterior == 0)).all(axis=1) & (present.sum(axis=1) > 1))


def attention_over_items(
    log_weight: Float[np.ndarray, "layer row head key"],
    stands: Bool[np.ndarray, "row key outcome"],
    posterior: Float[np.ndarray, "row outcome"],
) -> ItemRows:
    """Compare attention (log2 weights, NaN at unseen keys) with the posterior, in the comparable rows."""
    row = comparable_rows(stands, posterior)
    where, p_by_outcome = stands[row], np.asarray(posterior[row], dtype=np.float64)
    present = where.any(axis=1)
    # items first, in the order of the outcomes, so that shifts run within each row's own items
    order = np.argsort(~present, axis=1, kind="stable")
    p, n_items = np.take_along_axis(p_by_outcome, order, axis=1), present.sum(axis=1)
    n_shifts = int(n_items.max(initial=1))
    shape = (len(row), n_shifts, len(log_weight), log_weight.shape[2])
    kl, mass = np.full(shape, np.nan), np.full(shape, np.nan)
    for layer, weights in enumerate(log_weight):
        item = _item_weights(weights[row], where)
        item = np.take_along_axis(item, order[:, None, :], axis=2)
        for shift in range(n_shifts):
            mine = n_items > shift
            turned = _turned(p[mine], n_items[mine], shift)
            kl[mine, shift, layer], mass[mine, shift, layer] = _compare(turned, item[mine])
    n_seen = (~np.isnan(log_weight[0, row, 0])).sum(axis=1)
    uniform_mass = np.einsum("rko,ro->r", where, p_by_outcome > 0, dtype=np.float64) / n_seen
    return ItemRows(row, kl, mass, n_items, np.log2(n_items) - entropy_bits(p), uniform_mass)


def _item_weights(log_weight: np.ndarray, where: np.ndarray) -> Float[np.ndarray, "row head outcome"]:
    """Weight of every outcome in float64, where even 2⁻¹⁰⁰⁰ is not yet zero."""
    weights = np.exp2(np.nan_to_num(np.asarray(log_weight, dtype=np.float64), nan=-np.inf))
    return weights @ where.astype(np.float64)


def _turned(p: np.ndarray, n_items: np.ndarray, shift: int) -> np.ndarray:
    """The posterior with its first `n_items` entries moved on by `shift`, round the items."""
    place = np.arange(p.shape[1])[None]
    source = np.where(place < n_items[:, None], (place + shift) % n_items[:, None], place)
    return np.take_along_axis(p, source, axis=1)


def _compare(p: np.ndarray, item: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(p || item weights renormalised) and the weight on what is possible, `[row, head]`."""
    possible = np.broadcast_to((p > 0)[:, None], item.shape)
    with np.errstate(divide="ignore"):
        log_q = np.log2(item, out=np.zeros_like(item), where=possible) - np.log2(item.sum(axis=2, keepdims=True))
    cross = -np.sum(p[:, None] * log_q, axis=2, where=possible)
    return np.maximum(0.0, cross - entropy_bits(p)[:, None]), np.sum(item, axis=2, where=possible)
