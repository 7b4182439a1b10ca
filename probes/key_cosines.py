"""What has been called key orthogonality: four kinds of vectors, each with the value that chance gives it.

`wk_columns`      columns of W_K, the key projection of one head, in R^d_model. Weights alone.
`token_keys`      keys of different tokens at one position, heads concatenated. Keys of one token are averaged.
`head_keys`       keys of the KV heads of one layer at one row.
`embedding_proxy` embeddings of different tokens: the stand-in for keys of the published code, which holds none.

All are measured before rotary embedding, with which keys of equal positions keep their cosines. Every function
gives one scalar for each layer and measure (`interp.cosines.MEASURES`), by the name of the measure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from interp.bands import mean_band
from interp.cosines import (
    MEASURES,
    Reference,
    cosine_measures,
    gaussian_sets,
    largest_deviation_p,
    random_rotations,
)
from interp.findings import Scalar
from interp.jackknife import equal_groups, standard_error, t_quantile
from interp.nulls import null_from_permutations
from probes.cloud import Cloud
from probes.profiles import Profile

FEW_TOKENS = 20
"""Vectors below which a mean over pairs says little."""

_ROUNDING = 1e-6
"""Half-width below which an interval is rounding: activations are float32."""

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


def column_measures(weights: Float[np.ndarray, "layer kv_head d_model d_head"]) -> Float[np.ndarray, "layer kv_head measure"]:
    """`MEASURES` of the columns of every head's projection."""
    return np.array([cosine_measures(np.swapaxes(layer, -1, -2)) for layer in weights])


def shuffled_columns(
    weights: Float[np.ndarray, "layer kv_head d_model d_head"], rng: np.random.Generator
) -> Float[np.ndarray, "layer kv_head measure"]:
    """`MEASURES` after the entries of every column were put in random order: its values stay, its direction does not."""
    return np.array([cosine_measures(rng.permuted(np.swapaxes(layer, -1, -2), axis=-1)) for layer in weights])


def wk_columns(measured: Float[np.ndarray, "layer kv_head measure"], references: dict[str, Reference]) -> Cosines:
    """Means over the heads of a layer, against heads of Gaussian weights."""
    n_layers, n_heads, _ = measured.shape

    def scalar(measure: str, heads: np.ndarray, n_tests: int) -> Scalar:
        value = float(heads.mean())
        compared = references[measure].compare(value, heads.size, n_tests)
        return Scalar(
            value, "1", interval_reason="weights only: there is nothing to resample; the table gives the spread over heads",
            null=compared.null, p=_known(compared.p), p_over="layers" if n_tests > 1 else "",
            n=heads.size, n_unit="head", meaning=meaning("wk_columns", measure),
        )  # fmt: skip

    return Cosines(
        {m: [scalar(m, measured[layer, :, i], n_layers) for layer in range(n_layers)] for i, m in enumerate(MEASURES)},
        {m: scalar(m, measured[..., i].ravel(), 1) for i, m in enumerate(MEASURES)},
    )


def head_keys(cloud: Cloud, n_heads: int, weights: Int[np.ndarray, "resample row"], n_null: int, seed: int) -> Cosines:
    """Means over rows, bootstrapped over prompts, against every head's keys turned by a rotation of its own.

    Centred: every head's mean over all rows is taken off its keys, so that what remains is what the prompt changes.
    A rotation is one for all rows and layers, so each head's own cloud stays as it is; chance is in how the clouds
    of two heads lie to one another.
    """
    keys = cloud.points.reshape(*cloud.points.shape[:2], n_heads, -1)
    by_row = np.array([_head_measures(layer) for layer in keys])
    rotations = random_rotations(keys.shape[-1], n_null * n_heads, np.random.default_rng(seed))
    kept = np.linspace(0, keys.shape[1] - 1, min(keys.shape[1], _NULL_ROWS)).astype(int)
    draws = _rotated_heads(keys[:, kept], rotations.reshape(n_null, n_heads, *rotations.shape[1:]))
    band = mean_band(np.moveaxis(by_row, 1, -1), weights)
    pooled = mean_band(by_row.mean(axis=0).T, weights)
    profiles: dict[str, Profile] = {}
    over: dict[str, Scalar] = {}
    for i, measure in enumerate(MEASURES):
        p = largest_deviation_p(band.mean[:, i], draws[..., i])
        common: dict[str, Any] = {"n": cloud.n_units, "n_unit": cloud.unit, "meaning": meaning("head_keys", measure)}
        profiles[measure] = [
            _bootstrapped(band.mean[k, i], (band.low[k, i], band.high[k, i]), draws[:, k, i], p[k], common, "layers")
            for k in range(cloud.n_layers)
        ]
        mean_draws = draws[..., i].mean(axis=1)
        p_mean = largest_deviation_p(pooled.mean[[i]], mean_draws[:, None])[0]
        over[measure] = _bootstrapped(pooled.mean[i], (pooled.low[i], pooled.high[i]), mean_draws, p_mean, common, "")
    return Cosines(profiles, over)


def _bootstrapped(
    value: float, interval: tuple[float, float], draws: np.ndarray, p: float, common: dict[str, Any], p_over: str
) -> Scalar:
    known = bool(np.isfinite(value)) and bool(np.isfinite(interval).all())
    return Scalar(
        float(value), "1", interval=(float(interval[0]), float(interval[1])) if known else None,
        interval_method=f"bootstrap over {common['n_unit']}s within strata",
        interval_reason="" if known else "keys without length have no direction",
        null=null_from_permutations("every head's keys turned at random", draws) if known else None,
        null_reason="" if known else "keys without length have no direction",
        p=_known(p), p_over=p_over, underpowered=common["n"] < FEW_TOKENS, **common,
    )  # fmt: skip


def _head_measures(keys: Num[np.ndarray, "row head d_head"]) -> Float[np.ndarray, "row measure"]:
    """`MEASURES` at every row; centred on each head's mean over the rows, not on the mean over heads."""
    keys = np.asarray(keys, dtype=np.float64)
    # centred vectors of a single row would all be nothing; cosine_measures gives NaN for them
    return np.concatenate([cosine_measures(keys)[:, :2], cosine_measures(keys - keys.mean(axis=0))[:, :2]], axis=1)


def _rotated_heads(
    keys: Num[np.ndarray, "layer row head d_head"], rotations: Float[np.ndarray, "draw head d_head d_head"]
) -> Float[np.ndarray, "draw layer measure"]:
    """`MEASURES` averaged over rows with every head turned, for each draw and layer."""
    by_head = np.swapaxes(keys, 1, 2)
    turned = (np.swapaxes(by_head @ rotation.astype(keys.dtype), 1, 2) for rotation in rotations)
    return np.array([[_head_measures(layer).mean(axis=0) for layer in draw] for draw in turned])


@dataclass(frozen=True)
class TokenSets:
    """Which rows hold which token at which position: the tokens that are compared, position by position."""

    row: Int[np.ndarray, " row"]
    position: Int[np.ndarray, " row"]
    token: Int[np.ndarray, " row"]
    n_tokens: int

    @classmethod
    def of(cls, tokens: np.ndarray, positions: np.ndarray, max_tokens: int, rng: np.random.Generator) -> "TokenSets":
        """At most `max_tokens` different tokens, chosen at random; positions as indices from 0."""
        names = np.unique(tokens)
        names = np.sort(rng.choice(names, min(len(names), max_tokens), replace=False))
        row = np.flatnonzero(np.isin(tokens, names))
        return cls(row, np.unique(positions[row], return_inverse=True)[1], np.searchsorted(names, tokens[row]), len(names))


def token_measures(
    vectors: Num[np.ndarray, "row feature"], sets: TokenSets, groups: Sequence[np.ndarray], units: np.ndarray
) -> tuple[Float[np.ndarray, " measure"], Float[np.ndarray, "group measure"]]:
    """`MEASURES` of the mean vectors of the tokens, averaged over positions: of all rows, and without each group.

    `groups` hold the units (prompts) that are left out together; an average over positions leaves out those that
    have no pair of tokens.
    """
    lookup = {unit: g for g, group in enumerate(groups) for unit in group}
    group = np.array([lookup.get(unit, len(groups)) for unit in units[sets.row]])
    found = []
    for position in np.unique(sets.position):
        mine = sets.position == position
        cell = group[mine] * sets.n_tokens + sets.token[mine]
        sums = np.zeros(((len(groups) + 1) * sets.n_tokens, vectors.shape[1]))
        np.add.at(sums, cell, vectors[sets.row[mine]])
        sums = sums.reshape(len(groups) + 1, sets.n_tokens, -1)
        counts = np.bincount(cell, minlength=len(sums) * sets.n_tokens).reshape(len(sums), -1)
        total, n = sums.sum(axis=0, keepdims=True), counts.sum(axis=0, keepdims=True)
        kept, n_kept = np.concatenate([total, total - sums[:-1]]), np.concatenate([n, n - counts[:-1]])
        means = kept / np.maximum(n_kept, 1)[..., None]
        found.append(cosine_measures(means, n_kept > 0))
    by_position = np.array(found)
    known = np.isfinite(by_position)
    mean = np.where(known, by_position, 0.0).sum(axis=0)
    mean = np.divide(mean, known.sum(axis=0), out=np.full_like(mean, np.nan), where=known.any(axis=0))
    return mean[0], mean[1:]


def token_cosines(
    definition: str, points: Num[np.ndarray, "layer row feature"], cloud: Cloud, sets: TokenSets, references: dict[str, Reference]
) -> dict[str, Profile]:
    """A profile over the layers of `points`, with jackknife intervals over the prompts of `cloud`."""
    names = np.unique(cloud.units[sets.row])
    size, members = equal_groups(len(names))
    groups = [names[group] for group in members]
    profiles: dict[str, list[Scalar]] = {measure: [] for measure in MEASURES}
    for layer in points:
        value, replicates = token_measures(layer, sets, groups, cloud.units)
        error = standard_error(replicates, len(names), size) * t_quantile(len(groups))
        for i, measure in enumerate(MEASURES):
            compared = references[measure].compare(float(value[i]), 1, len(points))
            known = bool(np.isfinite(value[i]) and error[i] > _ROUNDING)
            reason = "leaving prompts out changes nothing: these vectors depend on the token alone"
            profiles[measure].append(
                Scalar(
                    float(value[i]), "1",
                    interval=(float(value[i] - error[i]), float(value[i] + error[i])) if known else None,
                    interval_method=f"delete-group jackknife over {cloud.unit}s, groups of {size}",
                    interval_reason="" if known else reason if np.isfinite(value[i]) else "fewer than two tokens at every position",
                    null=compared.null, p=_known(compared.p), p_over="layers" if len(points) > 1 else "",
                    n=len(names), n_unit=cloud.unit, n_distinct_rows=sets.n_tokens,
                    underpowered=sets.n_tokens < FEW_TOKENS and cloud.unit == "prompt",
                    meaning=meaning(definition, measure),
                )
            )  # fmt: skip
    return {measure: profile for measure, profile in profiles.items()}


def _known(p: float) -> float | None:
    return float(p) if np.isfinite(p) else None
