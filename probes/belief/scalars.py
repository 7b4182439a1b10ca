"""The numbers of the belief probe with their intervals and nulls, at every place (a site and a layer) at once."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.findings import Interval, Scalar
from interp.statistics.estimate import (
    chance_half_width,
    excess,
    maximum_statistic_p,
    normal_interval,
    null_from_draws,
    null_from_permutations,
    share_interval,
    t_half_width,
    t_quantile,
)
from interp.statistics.jackknife import standard_error

from ..measures.places import Counted
from .clusters import Clusters, Gathered
from .readout import N_SUBSPACES, Reading, Setting, Shares
from .scores import UNITS, Scores

P_OVER = "layers and sites"
_STILL = "no resample differs"
_R2_SCALE = "scale of log(1 − R²), at least the scatter of permuted beliefs"

MEANINGS = {
    "r2": "Share of the variance of the exact belief, all components together, that a linear readout of the "
    "activations predicts in {unit}s it was not fitted on; 0 is no better than the mean belief.",
    "r2_beyond_position": "Share of the belief's variance beyond position that a linear readout predicts in "
    "{unit}s it was not fitted on, position taken out of the activations too.",
    "position_r2": "Share of the variance of the exact belief that {words} alone predicts: what a readout of position "
    "without any evidence would reach.",
    "selectivity": "How much better the belief is read than control tasks, in which each token at each position is "
    "given a belief at random: what is found beyond telling tokens and positions apart.",
    "random_subspace_r2": "Share of the variance of the belief read by least squares from {rank} random directions of "
    "the activations, as many as the belief has dimensions: where it comes near r2, no particular subspace holds it.",
    "silhouette": "How clearly the activations gather by the most likely state, in their first ten principal axes: 1 "
    "in tight, distant groups, 0 where the groups overlap.",
    "tvd": "Mean total variation between the exact belief and the decoded one, put on the simplex at the nearest "
    "point; position alone: {position:.3g}.",
    "kl_bits": "Mean KL of the decoded belief, on the simplex and mixed with 1 % of what position predicts, from the "
    "exact one; position alone: {position:.3g} bits.",
    "accuracy": "Share of the set's components that are decoded rightly (in or out, above or below one half); position "
    "alone: {position:.3g}.",
    "right": "Share of rows at which the belief is decoded rightly (of names the one predicted highest, of 0 and 1 "
    "above or below one half); position alone: {position:.3g}.",
    "output_tvd": "Mean total variation between the exact posterior and the model's own prediction over its outcomes: "
    "how much of the belief is used in the end, beside how much can be read.",
}  # fmt: skip


def share_scalars(name: str, shares: Sequence[Shares], setting: Setting, counted: Counted, reason: str) -> list[Scalar]:
    """R² at every place, p one-sided over all places; `reason` says why there would be none."""
    values = np.array([share.r2 for share in shares])  # [place, belief and exchanges]
    p = _one_sided_p(values)
    meaning = MEANINGS[name].format(unit=counted.unit)
    made = []
    for i, share in enumerate(shares):
        if np.isnan(values[i, 0]):
            made.append(counted.undefined(reason, "fraction", meaning))
            continue
        bounds = share_interval(
            share.errors.sum(axis=1), share.totals.sum(axis=1), setting.weights, chance_half_width(values[i, 1:])
        )
        interval = Interval.of(bounds, f"{_fixed(counted)}, {_R2_SCALE}", _STILL)
        null = null_from_permutations(_exchange(counted), values[i, 1:])
        made.append(
            Scalar.of(
                values[i, 0], "fraction", interval, null, p=p[i], p_over=P_OVER, meaning=meaning, **counted.about(i)
            )
        )
    return made


def _one_sided_p(values: Float[np.ndarray, "place value_and_exchanges"]) -> Float[np.ndarray, " place"]:
    """By the largest excess over each place's own exchanges; one without a value found nothing."""
    return maximum_statistic_p(*excess(values[:, 0], np.nan_to_num(values[:, 1:].T, nan=0.0)))


def component_scalars(share: Shares, setting: Setting, counted: Counted, place: int) -> list[Scalar]:
    """R² of every component at one place, p over components."""
    values = share.by_component
    p = _one_sided_p(values.T)
    made = []
    for i, value in enumerate(values[0]):
        meaning = f"Share of the variance of component {i} of the belief that the readout predicts."
        if np.isnan(value):
            made.append(counted.undefined("this component never varies", "fraction", meaning))
            continue
        least = chance_half_width(values[1:, i])
        bounds = share_interval(share.errors[:, i], share.totals[:, i], setting.weights, least)
        interval = Interval.of(bounds, f"{_fixed(counted)}, {_R2_SCALE}", _STILL)
        null = null_from_permutations(_exchange(counted), values[1:, i])
        made.append(
            Scalar.of(
                value, "fraction", interval, null, p=p[i], p_over="components", meaning=meaning, **counted.about(place)
            )
        )
    return made


def position_scalar(reading: Reading, setting: Setting, counted: Counted) -> Scalar:
    """R² of position alone: a baseline that every place shares."""
    words = ", ".join(setting.position_names) or "position"
    meaning = MEANINGS["position_r2"].format(words=words)
    errors, totals = reading.beyond.totals.sum(axis=1), reading.kept.totals.sum(axis=1)
    if not setting.position_names or totals.sum() == 0:
        reason = "the belief does not vary" if setting.position_names else "the position does not vary"
        return counted.undefined(reason, "fraction", meaning)
    interval = Interval.of(
        share_interval(errors, totals, setting.weights), f"{_fixed(counted)}, scale of log(1 − R²)", _STILL
    )
    return Scalar.of(
        1 - errors.sum() / totals.sum(), "fraction", interval,
        "a baseline for r2; the mean belief, fitted on other rows, has 0", meaning=meaning, **counted.about(),
    )  # fmt: skip


def selectivity_scalar(reading: Reading, setting: Setting, counted: Counted, place: int) -> Scalar:
    """R² of the belief − mean R² of its control tasks. The null puts each control task in the belief's place."""
    meaning = MEANINGS["selectivity"]
    task, controls = float(reading.kept.r2[0]), reading.control_r2
    if np.isnan(task) or np.isnan(controls).any():
        reason = "the belief does not vary" if np.isnan(task) else "a control task is the same at every row"
        return counted.undefined(reason, "fraction", meaning)
    value = task - float(controls.mean())
    errors = np.column_stack([reading.kept.errors.sum(axis=1), reading.control_errors])
    totals = np.column_stack([reading.kept.totals.sum(axis=1), reading.control_totals])
    resampled = setting.weights @ totals
    usable = (resampled > 0).all(axis=1)
    unexplained = (setting.weights @ errors)[usable] / resampled[usable]
    differences = unexplained[:, 1:].mean(axis=1) - unexplained[:, 0]
    others = (controls.sum() - controls) / (len(controls) - 1)
    return Scalar.of(
        value, "fraction", Interval.of(normal_interval(value, differences), _fixed(counted), _STILL),
        null_from_draws("another control task in place of the belief", controls - others), meaning=meaning,
        **counted.about(place),
    )  # fmt: skip


def subspace_scalar(reading: Reading, setting: Setting, counted: Counted, place: int) -> Scalar:
    """Mean R² from random subspaces, with the interval of that mean over draws."""
    draws, rank = reading.subspace_r2, setting.belief.rank
    meaning = MEANINGS["random_subspace_r2"].format(rank=rank)
    if len(draws) == 0 or np.isnan(draws).any():
        reason = "the belief does not vary" if rank == 0 else (
            f"{rank} random directions would be all of the activations, or more than the {counted.unit}s can fit"
        )  # fmt: skip
        return counted.undefined(reason, "fraction", meaning)
    half = float(t_half_width(draws))
    value = float(draws.mean())
    bounds = (value - half, value + half) if half > 0 else None
    return Scalar.of(
        value, "fraction", Interval.of(bounds, f"t, mean of {N_SUBSPACES} random subspaces", _STILL),
        "a control: read r2 beside it", meaning=meaning, **counted.about(place),
    )  # fmt: skip


def score_scalar(name: str, score: Scores, setting: Setting, counted: Counted, place: int | None) -> Scalar:
    """The mean of a score over rows, with its bootstrap interval; null: exact beliefs permuted, predictions kept."""
    value = float(score.by_row.mean())
    is_column = name == "accuracy" and setting.belief.names
    meaning = MEANINGS["right" if is_column else name].format(position=float(score.by_position.mean()))
    if not np.isfinite(value) or not np.isfinite(score.exchanged).all():
        reason = "undefined: a state occurs that the sequences fitted on never held, and that was decoded as impossible"
        return counted.undefined(reason, UNITS[name], meaning)
    sums = np.bincount(setting.code, score.by_row)
    counts = np.bincount(setting.code)
    resampled = (setting.weights @ sums) / (setting.weights @ counts)
    interval = Interval.of(normal_interval(value, resampled), _fixed(counted), _STILL)
    null = null_from_permutations(f"exact beliefs permuted between {counted.unit}s, predictions kept", score.exchanged)
    return Scalar.of(value, UNITS[name], interval, null, meaning=meaning, **counted.about(place))


def silhouette_scalars(gathered: Sequence[Gathered], clusters: Clusters, counted: Counted) -> list[Scalar]:
    """Mean silhouette at every place, p one-sided over all places."""
    values = np.array([found.values for found in gathered])  # [place, states and exchanges]
    p = _one_sided_p(values)
    made = []
    for i, found in enumerate(gathered):
        if np.isnan(values[i, 0]):
            reason = clusters.reason or "nothing varies in these activations"
            made.append(counted.undefined(reason, "1", MEANINGS["silhouette"]))
            continue
        bounds, n_groups = None, len(found.without)
        if n_groups and np.ptp(found.without) > 0:
            half = t_quantile(n_groups) * float(standard_error(found.without, clusters.n_units, clusters.n_deleted))
            bounds = values[i, 0] - half, values[i, 0] + half
        method = f"jackknife over {counted.unit}s, {n_groups} groups"
        interval = Interval.of(bounds, method, "no group differs")
        null = null_from_permutations(f"states permuted between {counted.unit}s", values[i, 1:])
        made.append(
            Scalar.of(
                values[i, 0], "1", interval, null, p=p[i], p_over=P_OVER, meaning=MEANINGS["silhouette"],
                **counted.about(i) | {"n_clusters" if counted.counts.get("n_clusters") else "n": clusters.n_units},
            )
        )  # fmt: skip
    return made


def _fixed(counted: Counted) -> str:
    return f"bootstrap over {counted.unit}s, fits held fixed"


def _exchange(counted: Counted) -> str:
    return f"refitted on beliefs permuted between {counted.unit}s"
