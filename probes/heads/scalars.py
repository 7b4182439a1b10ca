"""The headline numbers of the probe `heads`, each with its interval and null, or the reason why not."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.findings import Null, Scalar
from interp.statistics.nulls import null_from_permutations

from ..measures.harm import MEANINGS, Scores
from ..measures.prompt_effects import TopHead, error_ratio, estimates
from ..measures.prompt_means import band, interval, mean_of_units
from .edits import LATE, PARTS, Plan
from .tables import Signs, compounding, random_effects, range_of

MIN_UNITS = 20
"""Prompts below which every number is called underpowered."""

NO_EDIT = "no edit was tried: the probe was given the unedited model alone"


def nothing_tried() -> dict[str, Scalar]:
    """What is found without conditions."""
    return {
        "top_head_ratio": Scalar(
            float("nan"), "1", interval_reason=NO_EDIT, null_reason=NO_EDIT, underpowered=True,
            meaning="harm of the most harmful head over that of the second",
        )
    }  # fmt: skip


def _counted(scores: Scores, meaning: str) -> dict[str, Any]:
    units = scores.units
    return {"n": units.n, "n_unit": units.name, "underpowered": units.n < MIN_UNITS, "meaning": meaning}


def baseline_scalar(scores: Scores, measure: str) -> Scalar:
    """What the unedited model does."""
    values = scores.baseline(measure)
    value = float(mean_of_units(values))
    bounds = interval(value, scores.units.resampled(values[:, None])[:, 0])
    return Scalar(
        value, "bits", interval=bounds, interval_method=f"percentile bootstrap over {scores.units.name}s",
        interval_reason="" if bounds else "no prompt has it",
        null_reason="the reference of all edits; its own no-skill values are given by the probe sula",
        **_counted(scores, f"{MEANINGS[measure]}, of the unedited model"),
    )  # fmt: skip


def top_head_scalars(scores: Scores, plan: Plan, found: TopHead, how: str, measure: str) -> dict[str, Scalar]:
    """Ratio to the second, share of all harm, and the layer it is in."""
    words = f"{_named(plan, found.top)} ({how} ablation; {measure}; the second is {_named(plan, found.second)})"
    return {
        "ratio": _ratio(scores, found, words),
        "share": _share(scores, found, plan, words),
        "layer": Scalar(
            float(found.top // plan.n_heads), "layer", interval_reason="a place: top_head_ratio says how clear it is",
            null_reason="a place: a head is as likely in one layer as in another",
            **_counted(scores, f"layer of the most harmful head, counted from 0: {words}"),
        ),
    }  # fmt: skip


def _named(plan: Plan, head: int) -> str:
    return f"layer {head // plan.n_heads} head {head % plan.n_heads}"


def _ratio(scores: Scores, found: TopHead, words: str) -> Scalar:
    counted = _counted(scores, f"harm of the most harmful head over that of the second: {words}")
    null = f"the two heads exchanged in random {scores.units.name}s; p is of the gap in bits"
    if np.isnan(found.ratio):
        reason = "no second head does any harm: read top_head_share"
        return Scalar(found.ratio, "1", interval_reason=reason, null_reason=reason, p=None, **counted)
    replicates, exchanged = found.ratio_replicates, found.exchanged_ratio
    is_bounded = not np.isnan(replicates).any()
    bounds = interval(found.ratio, replicates) if is_bounded else None
    is_null = not np.isnan(exchanged).any()
    return Scalar(
        found.ratio, "1", interval=bounds,
        interval_method=f"percentile bootstrap over {scores.units.name}s, the two heads held fixed" if bounds else "",
        interval_reason="" if bounds else "in some resamples the second head does no harm: no upper bound",
        null=null_from_permutations(null, exchanged) if is_null else None,
        null_reason="" if is_null else "exchanged, one of the two at times does no harm; p is of the gap in bits",
        p=found.p, **counted,
    )  # fmt: skip


def _share(scores: Scores, found: TopHead, plan: Plan, words: str) -> Scalar:
    counted = _counted(scores, f"part of the summed harm of all harmful heads that one does: {words}")
    if np.isnan(found.share):
        reason = "no head does any harm"
        return Scalar(found.share, "fraction", interval_reason=reason, null_reason=reason, **counted)
    bounds = None if np.isnan(found.share_replicates).any() else interval(found.share, found.share_replicates)
    equal = 1 / plan.n_all
    return Scalar(
        found.share, "fraction", interval=bounds,
        interval_method=f"percentile bootstrap over {scores.units.name}s, the head held fixed" if bounds else "",
        interval_reason="" if bounds else "in some resamples no head does harm",
        null=Null(f"equal shares of all {plan.n_all} heads", equal, (equal, equal)), **counted,
    )  # fmt: skip


def top_effect_scalar(scores: Scores, plan: Plan, found: TopHead, effects: np.ndarray, measure: str) -> Scalar:
    """Harm of the most harmful head beside random subspaces of its layer."""
    bounds = interval(found.effect, scores.units.resampled(effects[:, [found.top]])[:, 0])
    null, reason = None, ""
    if plan.how[0] == "zero" and plan.n_random and plan.n_heads > 1:
        layer = found.top // plan.n_heads
        name = f"removing a random subspace of as many dimensions from layer {layer}'s z (range of {plan.n_random})"
        null = Null(name, *range_of(random_effects(scores, plan, layer, measure)))
    else:
        reason = "random subspaces match zero ablation alone, in layers of several heads"
    return Scalar(
        found.effect, "bits", interval=bounds,
        interval_method=f"percentile bootstrap over {scores.units.name}s, the head held fixed" if bounds else "",
        interval_reason="" if bounds else "no prompt has it", null=null, null_reason=reason,
        **_counted(scores, f"harm ({measure}) of {plan.how[0]} ablation of the worst: {_named(plan, found.top)}"),
    )  # fmt: skip


def bypass_scalar(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Scalar:
    """The smallest error ratio of all layers, each bypassed by itself."""
    names = [plan.part(PARTS[0], layer) for layer in range(plan.n_layers)]
    found = error_ratio(scores.scores(names, measure), scores.baseline(measure), scores.units, signs)
    if np.isnan(found.ratio).any() or np.isnan(found.low).any():
        reason = "the unedited model makes no error to compare with"
        return Scalar(
            float("nan"), "1", interval_reason=reason, null_reason=reason,
            **_counted(scores, f"{measure} with a layer bypassed over that of the unedited model"),
        )  # fmt: skip
    layer = found.smallest
    mean, (low, high) = float(found.flipped[:, layer].mean()), band(found.flipped[:, layer])
    return Scalar(
        float(found.ratio[layer]), "1", interval=(float(found.low[layer]), float(found.high[layer])),
        interval_method=f"percentile bootstrap over {scores.units.name}s, the layer held fixed",
        null=Null(f"signs of whole {scores.units.name}s' changes flipped", mean, (float(low), float(high))),
        p=found.p_of_all, p_over="all layers needed (intersection-union)",
        **_counted(
            scores,
            f"{measure} with a layer bypassed over that of the unedited model, the smallest of all layers: {layer}",
        ),
    )  # fmt: skip


def late_scalar(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Scalar:
    """Error without attention in the top two layers; the null is the model as it is."""
    values, before = scores.score(LATE, measure), scores.baseline(measure)
    value = float(mean_of_units(values))
    bounds = interval(value, scores.units.resampled(values[:, None])[:, 0])
    low, high = band(scores.units.resampled(before[:, None])[:, 0])
    p = estimates((values - before)[:, None], scores.units, signs).p
    layers = " and ".join(map(str, plan.late_layers))
    return Scalar(
        value, "bits", interval=bounds,
        interval_method=f"percentile bootstrap over {scores.units.name}s" if bounds else "",
        interval_reason="" if bounds else "no prompt has it",
        null=Null("the unedited model", float(mean_of_units(before)), (float(low), float(high))),
        p=None if p is None else float(p[0]),
        **_counted(scores, f"{MEANINGS[measure]}, with the attention of layers {layers} switched off"),
    )  # fmt: skip


def compounding_scalar(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Scalar:
    """Excess of the largest random sets over the sum of their members."""
    size = plan.set_sizes[-1]
    found = compounding(scores, plan, size, measure)
    estimate = estimates(found.excess[:, None], scores.units, signs)
    value, flipped = float(estimate.value[0]), signs @ np.nan_to_num(found.excess) / scores.units.n
    bounds = interval(value, scores.units.resampled(found.excess[:, None])[:, 0])
    return Scalar(
        value, "bits", interval=bounds,
        interval_method=f"percentile bootstrap over {scores.units.name}s, the sets held fixed" if bounds else "",
        interval_reason="" if bounds else "no prompt has it",
        null=null_from_permutations(f"signs of whole {scores.units.name}s flipped", flipped),
        p=None if estimate.p is None else float(estimate.p[0]),
        **_counted(
            scores,
            f"harm ({measure}) of {plan.n_sets} random sets of {size} heads minus the sum of their members' own harm; "
            "above 0 heads stand in for one another",
        ),
    )  # fmt: skip


def headline(scalars: Mapping[str, Scalar], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in scalars)
