"""Four kinds of vectors that have been called orthogonal keys, each compared with chance.

`wk_columns`      columns of W_K, the key projection of one head, in R^d_model: weights alone
`token_keys`      keys of different tokens at one position, heads concatenated, averaged for each token
`head_keys`       keys of the KV heads of one layer at one row
`embedding_proxy` embeddings of different tokens: what the published code uses in place of keys

All are measured before rotary embedding, which leaves cosines at equal positions unchanged. Functions return the
estimates of all layers for each measure (`interp.statistics.cosines.MEASURES`), by name.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Num

from interp.statistics.cosines import (
    MEASURES,
    Reference,
    cosine_measures,
    gaussian_sets,
    largest_deviation_p,
    random_rotations,
)
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units

from .cloud import Cloud

_ROUNDING = 1e-5
"""Length, relative to what it was, below which a centred key is rounding: activations are float32."""

_NULL_ROWS = 400
"""Rows that the null of `head_keys` is drawn from."""


def gaussian_references(
    n_vectors: int, n_features: int, n_draws: int, rng: np.random.Generator
) -> dict[str, Reference]:
    """Every measure of Gaussian sets of this shape."""
    drawn = cosine_measures(gaussian_sets(n_vectors, n_features, n_draws, rng))
    name = f"{n_vectors} Gaussian vectors in {n_features} dimensions"
    return {measure: Reference(name, drawn[:, i]) for i, measure in enumerate(MEASURES)}


def column_measures(
    weights: Float[np.ndarray, "layer kv_head d_model d_head"],
) -> Float[np.ndarray, "layer kv_head measure"]:
    """`MEASURES` of the columns of every head's projection."""
    return np.array([cosine_measures(np.swapaxes(layer, -1, -2)) for layer in weights])


def over_heads(
    measured: Float[np.ndarray, "layer head entry"], references: Mapping[str, Reference], n_independent: int
) -> tuple[dict[str, Estimates], dict[str, Estimates]]:
    """Means over the heads of each layer, and of all layers (one place), compared with those of Gaussian weights.

    `n_independent` of the heads of a layer share no weights. `references` are in the order of the entries.
    """

    def means(heads: np.ndarray, n_independent: int) -> dict[str, Estimates]:
        found = {}
        for (name, reference), value in zip(references.items(), heads.mean(axis=1).T, strict=True):
            mine = Estimates(value, about={"n": heads.shape[1], "n_unit": "head"})
            found[name] = reference.compared(mine.because("undefined: weights of zeros"), n_independent)
        return found

    n_layers, n_heads, n_entries = measured.shape
    pooled = measured.reshape(1, n_layers * n_heads, n_entries)
    return means(measured, n_independent), means(pooled, n_layers * n_independent)


def head_keys(
    cloud: Cloud, n_heads: int, units: Units, n_null: int, seed: int
) -> tuple[dict[str, Estimates], dict[str, Estimates]]:
    """Means over rows layer by layer, and over all layers (one place), bootstrapped over prompts.

    Null: each head's keys turned by a random rotation, the same for all rows and layers, which keeps the cloud of each
    head. Centred: each head's mean over rows is subtracted.
    """
    keys = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
    # centred on each head's mean over the rows, not on the mean over heads
    measured = [np.hstack([cosine_measures(x)[:, :2] for x in (layer, centred_heads(layer))]) for layer in keys]
    by_unit = units.means(np.array(measured))
    rotations = random_rotations(keys.shape[-1], n_null * n_heads, np.random.default_rng(seed))
    kept = np.linspace(0, keys.shape[1] - 1, min(keys.shape[1], _NULL_ROWS)).astype(int)
    draws = _rotated_heads(keys[:, kept], rotations.reshape(n_null, n_heads, *rotations.shape[1:]))
    mean, resampled = mean_of_units(by_unit), units.resampled(by_unit)
    by_layer, over = {}, {}
    for i, measure in enumerate(MEASURES):
        parts = mean[:, i], resampled[..., i], draws[..., i]
        by_layer[measure] = _turned(units, *parts)
        defined = np.isfinite(parts[0])
        pooled = (ratio(x[..., defined].sum(axis=-1, keepdims=True), defined.sum()) for x in parts)
        over[measure] = _turned(units, *pooled)
    return by_layer, over


def _turned(units: Units, value: np.ndarray, resampled: np.ndarray, draws: np.ndarray) -> Estimates:
    is_known = np.isfinite(value) & np.isfinite(draws).all(axis=0)
    why = np.where(is_known, "", "undefined: keys without length have no direction").tolist()
    found = units.about(Estimates.resampled(value, resampled, why=why))
    return found.permuted(np.where(is_known, draws, np.nan), largest_deviation_p(value, draws))


def centred_heads(keys: Num[np.ndarray, "*layer row head d_head"]) -> Float[np.ndarray, "*layer row head d_head"]:
    """The keys less every head's mean over rows; exactly zero where what is left is rounding.

    Keys of layer 0 depend on the last token alone, so prompts that share it leave nothing.
    """
    keys = np.asarray(keys, dtype=np.float64)
    centred = keys - keys.mean(axis=-3, keepdims=True)
    is_rounding = np.linalg.norm(centred, axis=-1) < _ROUNDING * np.linalg.norm(keys, axis=-1)
    centred[is_rounding] = 0.0
    return centred


def _rotated_heads(
    keys: Num[np.ndarray, "layer row head d_head"], rotations: Float[np.ndarray, "draw head d_head d_head"]
) -> Float[np.ndarray, "draw layer measure"]:
    """`MEASURES` averaged over rows with every head turned, for each draw and layer.

    Turning and centring commute and lengths stay, so directions are taken once; float32 is enough for chance.
    """
    both = (directions(x).astype(np.float32) for x in (keys, centred_heads(keys)))
    by_head_first = [np.swapaxes(x, 1, 2) for x in both]
    n_heads = keys.shape[2]
    draws = np.empty((len(rotations), len(keys), len(MEASURES)))
    for draw, rotation in enumerate(rotations.astype(np.float32)):
        for i, by_head in enumerate(by_head_first):
            turned = np.swapaxes(by_head @ rotation, 1, 2)
            cosine = turned @ np.swapaxes(turned, -1, -2)
            cosine[..., range(n_heads), range(n_heads)] = 0.0
            for k, values in enumerate((np.abs(cosine), cosine)):
                draws[draw, :, 2 * i + k] = values.sum(axis=(-1, -2)).mean(axis=-1) / (n_heads * (n_heads - 1))
    return draws


def directions(vectors: Num[np.ndarray, "*batch feature"]) -> Float[np.ndarray, "*batch feature"]:
    """Vectors of length one; NaN for one without length."""
    vectors = np.asarray(vectors, dtype=np.float64)
    return ratio(vectors, np.linalg.norm(vectors, axis=-1, keepdims=True))
