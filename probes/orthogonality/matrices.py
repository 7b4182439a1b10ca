"""Cosines of keys pair by pair, beside one draw of their null, which is computed in the same way."""

import numpy as np
from jaxtyping import Float, Int, Num

from interp.statistics.cosines import random_rotations
from interp.statistics.ratio import ratio
from interp.table import Table

from ..measures.key_cosines import directions
from ..measures.token_cosines import TokenSets
from .quantities import QUANTITIES


def token_matrix(
    keys: Num[np.ndarray, "row feature"], tokens: Int[np.ndarray, " row"], sets: TokenSets, layer: int, seed: int
) -> Table:
    """One row per pair of tokens: cosines at equal positions, averaged over those with both; NaN where there is none.

    The null has as many random directions of the same dimension.
    """
    n = sets.n_tokens
    random = np.random.default_rng(seed).standard_normal((n, keys.shape[1]))
    sums, n_pairs = np.zeros((n, n)), np.zeros((n, n))
    for position in np.unique(sets.position):
        mine = sets.position == position
        means = np.zeros((n, keys.shape[1]))
        np.add.at(means, sets.token[mine], keys[sets.row[mine]])
        held = np.bincount(sets.token[mine], minlength=n) > 0
        sums += np.where(np.outer(held, held), _cosines(means), 0.0)
        n_pairs += np.outer(held, held)
    names = np.zeros(n, dtype=int)
    names[sets.token] = tokens[sets.row]
    columns = {
        "layer": np.full(n * n, layer), "token": np.repeat(names, n), "other": np.tile(names, n),
        "cos": ratio(sums, n_pairs).ravel(), "cos_null": _cosines(random).ravel(),
    }  # fmt: skip
    caption = "Cosine of the keys of two tokens, heads concatenated, mean over positions; cos_null: random directions."
    return QUANTITIES.table(columns, caption, other="index")


def head_matrix(keys: Num[np.ndarray, "layer row kv_head feature"], seed: int) -> Table:
    """One row per layer and pair of KV heads: the mean over rows of the cosine of their keys.

    In the null the keys of every head are rotated at random, in the same way in all rows and layers.
    """
    n_layers, _, n, d_head = keys.shape
    rotations = random_rotations(d_head, n, np.random.default_rng(seed))
    measured = np.array([_cosines(layer).mean(axis=0) for layer in keys])
    turned = np.array([_cosines(np.einsum("rhd,hde->rhe", layer, rotations)).mean(axis=0) for layer in keys])
    layer, head, other = (index.ravel() for index in np.indices((n_layers, n, n)))
    columns = {
        "layer": layer, "kv_head": head, "other": other, "cos": measured.ravel(), "cos_null": turned.ravel(),
    }  # fmt: skip
    caption = "Cosine of the keys of two KV heads at one row, mean over rows; cos_null: every head turned at random."
    return QUANTITIES.table(columns, caption, other="head")


def _cosines(vectors: Num[np.ndarray, "*set vector feature"]) -> Float[np.ndarray, "*set vector vector"]:
    """All cosines within each set; 0 for a vector without length."""
    unit = np.nan_to_num(directions(vectors))
    return unit @ np.swapaxes(unit, -1, -2)
