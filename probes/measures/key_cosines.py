"""What has been called key orthogonality: four kinds of vectors, each with the value that chance gives it.

`wk_columns`      columns of W_K, the key projection of one head, in R^d_model. Weights alone.
`token_keys`      keys of different tokens at one position, heads concatenated. Keys of one token are averaged.
`head_keys`       keys of the KV heads of one layer at one row.
`embedding_proxy` embeddings of different tokens: the stand-in for keys of the published code, which holds none.

All are measured before rotary embedding, with which keys of equal positions keep their cosines. Every function
gives one scalar for each layer and measure (`interp.statistics.cosines.MEASURES`), by the name of the measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Num

from interp.findings import Interval, Scalar
from interp.statistics.cosines import (
    MEASURES,
    Reference,
    cosine_measures,
    gaussian_sets,
    largest_deviation_p,
    random_rotations,
)
from interp.statistics.estimate import band, null_from_permutations
from interp.statistics.units import Units, mean_of_units

from .cloud import Cloud
from .profiles import Profile

_ROUNDING = 1e-5
"""Length, relative to what it was, below which a centred key is rounding: activations are float32."""

_NO_DIRECTION = "undefined: keys without length have no direction"

_NULL_ROWS = 400
"""Rows that the null of `head_keys` is drawn from."""

MEANINGS = {
    "wk_columns": "How parallel the columns of one head's key projection are, on average over heads.",
    "token_keys": "How parallel the keys of different tokens at one position are, all heads together.",
    "head_keys": "How parallel the keys are that the heads of a layer give to one token, on average over prompts.",
    "embedding_proxy": "How parallel the embeddings of different tokens are. A proxy: no key enters it.",
}
_MEASURED = {
    "abs": "Mean |cos|.",
    "signed": "Mean cos, with its sign.",
    "abs_centred": "Mean |cos| once the common mean is taken off.",
    "signed_centred": "Mean cos, with its sign, once the common mean is taken off.",
}


@dataclass(frozen=True)
class Cosines:
    """One definition: a profile over layers for every measure, and the same averaged over all layers."""

    by_layer: dict[str, Profile]
    over_layers: dict[str, Scalar]


def meaning(definition: str, measure: str) -> str:
    return f"{MEANINGS[definition]} {_MEASURED[measure]}"


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


def shuffled_columns(
    weights: Float[np.ndarray, "layer kv_head d_model d_head"], rng: np.random.Generator
) -> Float[np.ndarray, "layer kv_head measure"]:
    """`MEASURES` after the entries of every column were put in random order: its values stay, not its direction."""
    return np.array([cosine_measures(rng.permuted(np.swapaxes(layer, -1, -2), axis=-1)) for layer in weights])


def wk_columns(measured: Float[np.ndarray, "layer kv_head measure"], references: dict[str, Reference]) -> Cosines:
    """Means over the heads of a layer, against heads of Gaussian weights."""
    n_layers = len(measured)

    def scalar(measure: str, heads: np.ndarray, n_tests: int) -> Scalar:
        value = float(heads.mean())
        compared = references[measure].compare(value, heads.size, n_tests)
        return Scalar.of(
            value, "1", "weights only: nothing to resample; the table has the spread over heads",
            compared.null if np.isfinite(value) else "undefined: columns of zeros", p=compared.p,
            p_over="layers" if n_tests > 1 else "", n=heads.size, n_unit="head", meaning=meaning("wk_columns", measure),
        )  # fmt: skip

    return Cosines(
        {m: [scalar(m, layer[:, i], n_layers) for layer in measured] for i, m in enumerate(MEASURES)},
        {m: scalar(m, measured[..., i].ravel(), 1) for i, m in enumerate(MEASURES)},
    )


def head_keys(cloud: Cloud, n_heads: int, units: Units, n_null: int, seed: int) -> Cosines:
    """Means over rows, bootstrapped over prompts, against every head's keys turned by a rotation of its own.

    Centred: every head's mean over all rows is taken off its keys, so that what remains is what the prompt changes.
    A rotation is one for all rows and layers, so each head's own cloud stays as it is; chance is in how the clouds
    of two heads lie to one another.
    """
    keys = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
    by_unit = units.means(np.array([_head_measures(layer) for layer in keys]))
    rotations = random_rotations(keys.shape[-1], n_null * n_heads, np.random.default_rng(seed))
    kept = np.linspace(0, keys.shape[1] - 1, min(keys.shape[1], _NULL_ROWS)).astype(int)
    draws = _rotated_heads(keys[:, kept], rotations.reshape(n_null, n_heads, *rotations.shape[1:]))
    resampled = units.resampled(by_unit)
    mean, (low, high) = mean_of_units(by_unit), band(resampled)
    profiles: dict[str, Profile] = {}
    over: dict[str, Scalar] = {}
    for i, measure in enumerate(MEASURES):
        p = largest_deviation_p(mean[:, i], draws[..., i])
        profiles[measure] = [
            replace(_bootstrapped(measure, mean[k, i], (low[k, i], high[k, i]), draws[:, k, i], p[k], units),
                    p_over="layers")
            for k in range(len(mean))
        ]  # fmt: skip
        defined = np.isfinite(mean[:, i])
        pooled, pooled_draws, pooled_resampled = (
            x[..., defined].mean(axis=-1) if defined.any() else np.full(x.shape[:-1], np.nan)
            for x in (mean[:, i], draws[..., i], resampled[..., i])
        )
        p_mean = largest_deviation_p(np.atleast_1d(pooled), pooled_draws[:, None])[0]
        over[measure] = _bootstrapped(measure, float(pooled), band(pooled_resampled), pooled_draws, p_mean, units)
    return Cosines(profiles, over)


def _bootstrapped(
    measure: str, value: float, bounds: Sequence[float] | np.ndarray, draws: np.ndarray, p: float, units: Units
) -> Scalar:
    known = bool(np.isfinite([value, *bounds]).all())
    # where all rows agree, rounding is between
    held = (min(value, bounds[0]), max(value, bounds[1])) if known else None
    return Scalar.of(
        value, "1", Interval.of(held, f"bootstrap over {units.drawn}s within strata", _NO_DIRECTION),
        null_from_permutations("every head's keys turned at random", draws)
        if known and np.isfinite(draws).all() else _NO_DIRECTION,
        p=p, meaning=meaning("head_keys", measure), **units.counted,
    )  # fmt: skip


def _head_measures(keys: Num[np.ndarray, "row head d_head"]) -> Float[np.ndarray, "row measure"]:
    """`MEASURES` at every row; centred on each head's mean over the rows, not on the mean over heads."""
    return np.concatenate([cosine_measures(keys)[:, :2], cosine_measures(centred_heads(keys))[:, :2]], axis=1)


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
    directions = [np.swapaxes(_directions(x), 1, 2) for x in (keys, centred_heads(keys))]
    n_heads = keys.shape[2]
    draws = np.empty((len(rotations), len(keys), len(MEASURES)))
    for draw, rotation in enumerate(rotations.astype(np.float32)):
        for i, by_head in enumerate(directions):
            turned = np.swapaxes(by_head @ rotation, 1, 2)
            cosine = turned @ np.swapaxes(turned, -1, -2)
            cosine[..., range(n_heads), range(n_heads)] = 0.0
            for k, values in enumerate((np.abs(cosine), cosine)):
                draws[draw, :, 2 * i + k] = values.sum(axis=(-1, -2)).mean(axis=-1) / (n_heads * (n_heads - 1))
    return draws


def _directions(vectors: Num[np.ndarray, "*batch d_head"]) -> Float[np.ndarray, "*batch d_head"]:
    """Vectors of length one in float32; NaN for one without length."""
    vectors = vectors.astype(np.float64)
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, out=np.full_like(vectors, np.nan), where=length > 0).astype(np.float32)
