"""What is kept of one checkpoint: small arrays by prompt where means over prompts follow, else final statistics.

by prompt     `tv`, `js`, `tv_exchanged`, `entropy` [prompt, layer, head]; `value_distance` [prompt, layer];
              `error.<name>` [prompt]
final         `stat.<name>` [entry, layer]: value, interval, null and its band
of weights    `drift` [layer, head]
exchanged     `exchange.patterns`, `exchange.network` [prompt]: errors with exchanged patterns (`exchange`) on the
              prompts `exchange.prompts`
of figures    `coordinates` [point, 2] in the first plane of the end's values, at the primary layer
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.information import entropy_bits, kl_bits, restricted, total_variation
from interp.need import Need
from interp.reductions import PromptMean
from interp.statistics.estimates import Estimates
from interp.statistics.ratio import ratio
from interp.statistics.spectra import principal_axes, scaled
from interp.statistics.units import Units

from ..measures.cloud import Cloud
from ..measures.entropy_correlation import Order
from ..measures.geometry import spectral_estimates
from ..measures.key_cosines import column_measures, gaussian_references, over_heads
from ..measures.maps import cloud_axes
from ..measures.target import EXACT_ENTROPY, NEXT_ENTROPY, Target
from ..measures.token_cosines import TokenSets, no_token_sets, token_cosines
from .entropy_order import ORDERED, EntropyOrder, ordered_statistics

Weights = Mapping[str, Float[np.ndarray, "layer _head d_model d_head"]]
"""The projections by letter: `q`, `k`."""

VALUES, ROWS, ENTROPY, KEYS = Need("v"), Need("pattern_row"), Need("pattern_entropy"), Need("k_pre")
OUTCOMES, NEXT = Need("outcome_log_prob"), Need("next_log_prob")
LOSS = Need("next_loss", PromptMean(), "followed")
WEIGHTS = {"q": Need("W_Q"), "k": Need("W_K")}
NEEDS = (VALUES, ROWS, ENTROPY, KEYS, OUTCOMES, NEXT, LOSS, *WEIGHTS.values())

EXCHANGED = (OUTCOMES, LOSS)
"""The activations from which errors are computed in networks with exchanged attention patterns."""

STATISTICS = (
    "pc1_share", "pc1_plus_pc2_share", "participation_ratio", *ORDERED, "entropy_correlation",
    "bayes_entropy_correlation", "token_keys", "wk_columns",
)  # fmt: skip

ERRORS = {
    "entropy_error": "distance of the prediction's entropy from the posterior's",
    "kl": "KL(exact posterior || prediction), all tokens",
    "loss": "surprise at the next token of the text",
    "output": "total variation of the next-token distribution to the end's",
}
"""The errors of the prediction, in words."""

MAX_POINTS = 300
_N_CLOUDS, _N_SETS, _N_TOKENS = 20, 30, 100


def row_distances(
    log_a: Float[np.ndarray, "*row key"], log_b: Float[np.ndarray, "*row key"]
) -> Float[np.ndarray, "distance *row"]:
    """Total variation and Jensen-Shannon divergence (bits) of rows given as log2 weights, NaN at keys unseen.

    NaN where no keys of a row were kept.
    """
    nothing = np.where(np.isnan(log_a).all(axis=-1) | np.isnan(log_b).all(axis=-1), np.nan, 0.0)
    a, b = (np.exp2(np.nan_to_num(x.astype(np.float64), nan=-np.inf)) for x in (log_a, log_b))
    middle = entropy_bits((a + b) / 2) - (entropy_bits(a) + entropy_bits(b)) / 2
    return np.stack([np.abs(a - b).sum(axis=-1) / 2, np.maximum(middle, 0.0)]) + nothing


def of_another(
    log_rows: Float[np.ndarray, "layer row head key"], units: np.ndarray
) -> Float[np.ndarray, "layer row head key"] | None:
    """The rows of the previous sequence at the same positions; None where sequences see different keys."""
    _, counts = np.unique(units, return_counts=True)
    if len(counts) < 2 or np.ptp(counts) > 0 or log_rows.shape[-1] == 0:
        return None
    moved = np.roll(log_rows, counts[0], axis=1)
    return moved if np.array_equal(np.isnan(moved[0, :, 0]), np.isnan(log_rows[0, :, 0])) else None


def drift(now: Weights, end: Weights) -> Float[np.ndarray, "layer head"]:
    """1 − cos of W_QK = W_Q W_Kᵀ with the end's, of every query head; NaN where one of them is zero."""
    size = np.sqrt(_inner(now, now) * _inner(end, end))
    return np.maximum(1 - ratio(_inner(now, end), size), 0.0)


def _inner(a: Weights, b: Weights) -> Float[np.ndarray, "layer head"]:
    """Inner products of W_QK, query head by query head, each with the KV head that it reads: Σ (Qᵀ Q') ∘ (Kᵀ K')."""
    found = []
    for layer in zip(a["q"], a["k"], b["q"], b["k"], strict=True):
        qa, ka, qb, kb = (x.astype(np.float64) for x in layer)
        queries, keys = qa.swapaxes(1, 2) @ qb, ka.swapaxes(1, 2) @ kb
        found.append(np.sum(queries * np.repeat(keys, len(queries) // len(keys), axis=0), axis=(1, 2)))
    return np.array(found)


def read_checkpoint(capture: Capture, final: Capture, layer: int, n_draws: int, seed: int) -> dict[str, np.ndarray]:
    """Everything above of one checkpoint, with `n_draws` of each null and interval."""
    units = _units(final)
    cloud, end = Cloud.of(capture, VALUES), Cloud.of(final, VALUES)
    found = _frame(capture, final, units)
    found["value_distance"] = units.means(_value_distance(cloud, end))
    found |= {f"error.{name}": values for name, values in errors(capture, final).items()}
    weights = ({letter: x[need] for letter, need in WEIGHTS.items()} for x in (capture, final))
    found["drift"] = drift(*weights)
    profiles = _profiles(capture, cloud, final, n_draws, seed)
    found |= {f"stat.{name}": _entries(profile, len(cloud.points)) for name, profile in profiles.items()}
    return found | {"coordinates": _coordinates(cloud, end, end.layer_index(layer))}


def errors(capture: Capture, final: Capture) -> dict[str, Float[np.ndarray, " prompt"]]:
    """`ERRORS` of every prompt, as far as these prompts have them."""
    units = _units(final)
    found: dict[str, np.ndarray] = {}
    if capture.posterior is not None:
        miss = entropy_bits(np.exp2(restricted(capture[OUTCOMES]))) - entropy_bits(capture.posterior)
        found = {"entropy_error": np.abs(miss), "kl": _kl(capture)}
    found["output"] = total_variation(*(np.exp2(x[NEXT].astype(np.float64)) for x in (capture, final)))
    found = {name: units.means(rows[None])[:, 0] for name, rows in found.items()}
    if capture.prompts.is_text:
        found["loss"] = _losses(capture, units)
    return found


def read_exchanged(with_patterns: Capture, of_network: Capture, prompts: np.ndarray) -> dict[str, np.ndarray]:
    """The error of both exchanges by prompt, and the numbers of these prompts."""
    found = {"exchange.prompts": prompts}
    for name, capture in {"patterns": with_patterns, "network": of_network}.items():
        units, is_exact = _units(capture), capture.posterior is not None
        found[f"exchange.{name}"] = units.means(_kl(capture)[None])[:, 0] if is_exact else _losses(capture, units)
    return found


def _units(capture: Capture) -> Units:
    return Units.of(capture.rows, capture.prompts.unit, 0, np.random.default_rng(0))


def _kl(capture: Capture) -> Float[np.ndarray, " row"]:
    """KL(exact posterior || prediction); probability of other tokens counts as error."""
    assert capture.posterior is not None
    return kl_bits(capture.posterior, np.exp2(capture[OUTCOMES].astype(np.float64)))


def _losses(capture: Capture, units: Units) -> Float[np.ndarray, " prompt"]:
    """The mean surprise over each text; NaN for one of a single token."""
    losses = np.full(units.n, np.nan)
    where = np.unique(capture.rows_at("followed")["prompt"])
    losses[np.searchsorted(units.index, where)] = capture[LOSS]
    return losses


def _frame(capture: Capture, final: Capture, units: Units) -> dict[str, np.ndarray]:
    now, end = capture[ROWS], final[ROWS]

    def distances_to(rows: np.ndarray) -> Float[np.ndarray, "distance layer row head"]:
        return np.stack([row_distances(*of_layer) for of_layer in zip(now, rows, strict=True)], axis=1)

    (tv, js), another = distances_to(end), of_another(end, final.rows["prompt"])
    exchanged = np.full_like(tv, np.nan) if another is None else distances_to(another)[0]
    found = {"tv": tv, "js": js, "tv_exchanged": exchanged, "entropy": capture[ENTROPY]}
    return {name: units.means(rows) for name, rows in found.items()}


def _value_distance(cloud: Cloud, end: Cloud) -> Float[np.ndarray, "layer row"]:
    """‖v − v_end‖ over the root mean squared distance of the end's values from their mean."""
    found = []
    for now, then in zip(cloud.points, end.points, strict=True):
        then = then.astype(np.float64)
        spread = np.sqrt(np.square(then - then.mean(axis=0)).sum(axis=1).mean())
        moved = np.linalg.norm(now - then, axis=1)
        found.append(moved / spread if spread > 0 else np.full(len(moved), np.nan))
    return np.array(found)


def _profiles(
    capture: Capture, cloud: Cloud, final: Capture, n_draws: int, seed: int
) -> dict[str, np.ndarray | Estimates]:
    """The final statistics of every layer."""
    clouds = cloud.gaussian(_N_CLOUDS, seed)
    found: dict[str, np.ndarray | Estimates] = dict(spectral_estimates(cloud, "centred", clouds))
    first = np.array([axes.scores[:, 0] for axes in cloud_axes(cloud, "centred", 1)])
    for column, name in ((NEXT_ENTROPY, "entropy_correlation"), (EXACT_ENTROPY, "bayes_entropy_correlation")):
        if column in cloud.rows:
            found[name] = Order(replace(cloud, target=Target(column)), first).estimates(n_draws, n_draws, seed)
    order = EntropyOrder.of(reference_entropy(final), cloud.n_units)
    ordered = np.array([ordered_statistics(x, order, cloud.units, _N_CLOUDS, seed) for x in cloud.points])
    found |= {name: ordered[:, i].T for i, name in enumerate(ORDERED)}
    return found | _keys(capture, cloud, seed)


def reference_entropy(final: Capture) -> Float[np.ndarray, " row"]:
    """The entropy that orders the states at every checkpoint: the exact posterior's, else that of the end."""
    rows = final.rows
    return np.asarray(rows[EXACT_ENTROPY if EXACT_ENTROPY in rows else NEXT_ENTROPY], np.float64)


def _keys(capture: Capture, cloud: Cloud, seed: int) -> dict[str, Estimates]:
    """|cos| of the columns of W_K, and of the keys of different tokens at layer 0 where tokens can be compared."""
    rng = np.random.default_rng([seed, 8])
    weights = capture[WEIGHTS["k"]]
    d_model, d_head = weights.shape[2:]
    references = gaussian_references(d_head, d_model, _N_SETS, rng)
    by_layer, _ = over_heads(column_measures(weights), references, weights.shape[1])
    found = {"wk_columns": by_layer["abs"]}
    if not no_token_sets(capture):
        sets = TokenSets.of(capture.rows["token"], capture.rows["position"], _N_TOKENS, rng)
        keys = Cloud.of(capture, KEYS).points[:1]
        references = gaussian_references(sets.n_tokens, keys.shape[2], _N_SETS, rng)
        found["token_keys"] = token_cosines(keys, cloud, sets, references)["abs"]
    return found


def _entries(found: np.ndarray | Estimates, n_layers: int) -> Float[np.ndarray, "entry layer"]:
    """Value, interval, null and its band; NaN at layers where a statistic is not defined (token keys above layer 0)."""
    if isinstance(found, Estimates):
        n = len(found.value)
        interval = np.full((2, n), np.nan) if found.interval is None else found.interval
        null = np.full((3, n), np.nan) if found.null is None else found.null
        found = np.vstack([found.value, interval, null])
    return np.pad(found, ((0, 0), (0, n_layers - found.shape[1])), constant_values=np.nan)


def shown_rows(end: Cloud) -> np.ndarray:
    """The rows in figures: whole prompts, the same at every checkpoint."""
    return np.isin(end.prompts, end.thinned(MAX_POINTS, np.random.default_rng(0)).prompts)


def _coordinates(cloud: Cloud, end: Cloud, layer: int) -> Float[np.ndarray, "point 2"]:
    """Values in the first plane of the end's values, about the end's mean."""
    axes = principal_axes(scaled(end.points[layer], "centred"), 2).directions
    points = cloud.points[layer][shown_rows(end)].astype(np.float64)
    scores = (points - end.points[layer].mean(axis=0, dtype=np.float64)) @ axes.T
    return np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
