"""The headline numbers of the probe `heads`, each with its interval and null, or the reason why not."""

from typing import Any

import numpy as np
from scipy import stats

from interp.findings import Interval, Null, Scalar
from interp.statistics.correlation import resampled_rank_correlations
from interp.statistics.estimate import (
    FISHER,
    NORMAL,
    band,
    normal_interval,
    null_from_permutations,
    percentile_interval,
)
from interp.statistics.units import FEW_UNITS, mean_of_units

from ..measures.harm import MEANINGS, Scores
from ..measures.prompt_effects import TopHead, error_ratio, estimates
from .choice import Choice
from .edits import LATE, PARTS, How, Plan
from .tables import Signs, compounding, random_effects, range_of

NO_EDIT = "no edit was tried: the probe was given the unedited model alone"
_NOBODY = "no prompt has it"
_HEAD_HELD = ", the head held fixed"


def nothing_tried() -> dict[str, Scalar]:
    """What is found without conditions."""
    meaning = "harm of the most harmful head over that of the second"
    return {"top_head_ratio": Scalar.undefined(NO_EDIT, underpowered=True, meaning=meaning)}


def _about(scores: Scores, meaning: str) -> dict[str, Any]:
    return {"meaning": meaning, **scores.units.counted}


def _method(scores: Scores, held: str = "") -> str:
    return f"percentile bootstrap over {scores.units.drawn}s{held}"


def baseline_scalar(scores: Scores, measure: str) -> Scalar:
    """What the unedited model does."""
    values = scores.baseline(measure)
    return Scalar.of(
        float(mean_of_units(values)), "bits", scores.units.mean_interval(values, _method(scores), _NOBODY),
        "the reference of all edits; its own no-skill values are given by the probe sula",
        **_about(scores, f"{MEANINGS[measure]}, of the unedited model"),
    )  # fmt: skip


def top_head_scalars(scores: Scores, choice: Choice, found: TopHead, how: How, measure: str) -> dict[str, Scalar]:
    """Ratio to the second, share of all harm, and the layer it is in."""
    plan, heads = choice.plan, choice.measured(how)
    top, second = _named(plan, int(heads[found.top])), _named(plan, int(heads[found.second]))
    words = f"{top} ({how} ablation; {measure}; the second is {second}){choice.in_words(how)}"
    return {
        "ratio": _ratio(scores, found, words),
        "share": _share(scores, found, choice, how, words),
        "layer": Scalar.of(
            int(heads[found.top]) // plan.n_heads, "layer", "a place: top_head_ratio says how clear it is",
            "a place: a head is as likely in one layer as in another",
            **_about(scores, f"layer of the most harmful head, counted from 0: {words}"),
        ),
    }  # fmt: skip


def _named(plan: Plan, head: int) -> str:
    return f"layer {head // plan.n_heads} head {head % plan.n_heads}"


def _ratio(scores: Scores, found: TopHead, words: str) -> Scalar:
    about = _about(scores, f"harm of the most harmful head over that of the second: {words}")
    if np.isnan(found.ratio):
        return Scalar.undefined("no second head does any harm: read top_head_share", **about)
    replicates, exchanged = found.ratio_replicates, found.exchanged_ratio
    null = f"the two heads exchanged in random {scores.units.name}s; p is of the gap in bits"
    return Scalar.of(
        found.ratio, "1",
        Interval.of(
            None if np.isnan(replicates).any() else percentile_interval(found.ratio, replicates),
            _method(scores, ", the two heads held fixed"),
            "in some resamples the second head does no harm: no upper bound",
        ),
        "exchanged, one of the two at times does no harm; p is of the gap in bits"
        if np.isnan(exchanged).any() else null_from_permutations(null, exchanged),
        p=found.p, **about,
    )  # fmt: skip


def _share(scores: Scores, found: TopHead, choice: Choice, how: How, words: str) -> Scalar:
    about = _about(scores, f"part of the summed harm of all harmful heads that one does: {words}")
    plan, method = choice.plan, _method(scores, _HEAD_HELD)
    if not choice.can_be_summed(how):
        reason = "no head that was passed over was ablated so: there is no sum over all heads"
        return Scalar.undefined(reason, "fraction", **about)
    if plan.is_screened:
        about["meaning"] += "; the random heads stand in the sum for all that were passed over"
        method += ", and over the random heads"
    if np.isnan(found.share):
        return Scalar.undefined("no head does any harm", "fraction", **about)
    bounds = (
        None if np.isnan(found.share_replicates).any() else percentile_interval(found.share, found.share_replicates)
    )
    equal = 1 / plan.n_all
    return Scalar.of(
        found.share, "fraction",
        Interval.of(bounds, method, "in some resamples no head does harm"),
        Null(f"equal shares of all {plan.n_all} heads", equal, (equal, equal)), **about,
    )  # fmt: skip


def top_effect_scalar(scores: Scores, choice: Choice, found: TopHead, effects: np.ndarray, measure: str) -> Scalar:
    """Harm of the most harmful head beside random subspaces of its layer."""
    plan, how = choice.plan, choice.plan.how[0]
    top = int(choice.measured(how)[found.top])
    null = "random subspaces match zero ablation alone, in layers of several heads"
    if how == "zero" and plan.n_random and plan.n_heads > 1:
        layer = top // plan.n_heads
        name = f"removing a random subspace of as many dimensions from layer {layer}'s z (range of {plan.n_random})"
        null = Null(name, *range_of(random_effects(scores, plan, layer, measure)))
    return Scalar.of(
        found.effect, "bits",
        scores.units.mean_interval(effects[:, found.top], _method(scores, _HEAD_HELD), _NOBODY), null,
        **_about(
            scores, f"harm ({measure}) of {how} ablation of the worst: {_named(plan, top)}{choice.in_words(how)}"
        ),
    )  # fmt: skip


def bypass_scalar(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Scalar:
    """The smallest error ratio of all layers, each bypassed by itself."""
    names = [plan.part(PARTS[0], layer) for layer in range(plan.n_layers)]
    found = error_ratio(scores.scores(names, measure), scores.baseline(measure), scores.units, signs)
    meaning = f"{measure} with a layer bypassed over that of the unedited model"
    if np.isnan(found.ratio).any() or np.isnan(found.low).any():
        return Scalar.undefined("the unedited model makes no error to compare with", **_about(scores, meaning))
    layer = found.smallest
    null = null_from_permutations(f"signs of whole {scores.units.drawn}s' changes flipped", found.flipped[:, layer])
    return Scalar.of(
        found.ratio[layer], "1",
        Interval(float(found.low[layer]), float(found.high[layer]), _method(scores, ", the layer held fixed")),
        null, p=found.p_of_all, p_over="all layers needed (intersection-union)",
        **_about(scores, f"{meaning}, the smallest of all layers: {layer}"),
    )  # fmt: skip


def late_scalar(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Scalar:
    """Error without attention in the top two layers; the null is the model as it is."""
    values, before = scores.score(LATE, measure), scores.baseline(measure)
    low, high = (float(x) for x in band(scores.units.resampled(before)))
    p = estimates((values - before)[:, None], scores.units, signs).p
    layers = " and ".join(map(str, plan.late_layers))
    return Scalar.of(
        float(mean_of_units(values)), "bits", scores.units.mean_interval(values, _method(scores), _NOBODY),
        Null("the unedited model", float(mean_of_units(before)), (low, high)), p=None if p is None else p[0],
        **_about(scores, f"{MEANINGS[measure]}, with the attention of layers {layers} switched off"),
    )  # fmt: skip


def compounding_scalar(scores: Scores, choice: Choice, measure: str, signs: Signs) -> Scalar:
    """Excess of the largest random sets over the sum of their members."""
    plan = choice.plan
    size = plan.set_sizes[-1]
    among = f" among the {len(plan.sample)} random ones" if plan.is_screened else ""
    found = compounding(scores, choice, size, measure)
    estimate = estimates(found.excess[:, None], scores.units, signs)
    flipped = signs @ np.nan_to_num(found.excess) / scores.units.n
    return Scalar.of(
        estimate.value[0], "bits",
        scores.units.mean_interval(found.excess, _method(scores, ", the sets held fixed"), _NOBODY),
        null_from_permutations(f"signs of whole {scores.units.drawn}s flipped", flipped),
        p=None if estimate.p is None else estimate.p[0],
        **_about(
            scores,
            f"harm ({measure}) of {plan.n_sets} random sets of {size} heads{among} minus the sum of their members' own "
            "harm; "
            "above 0 heads stand in for one another",
        ),
    )  # fmt: skip


def agreement_scalar(scores: Scores, choice: Choice, effects: np.ndarray, measure: str, counts: np.ndarray) -> Scalar:
    """Rank correlation of the screen with the ablations, over the random heads; `counts` resample these."""
    plan = choice.plan
    how, n = plan.how[0], len(plan.sample)
    screened = mean_of_units(choice.estimates[how])[plan.sample]
    harm = mean_of_units(effects)[np.isin(choice.measured(how), plan.sample)]
    once = np.ones((1, n), dtype=np.int64)
    rho = float(resampled_rank_correlations(screened[None], harm, once)[0, 0])
    bounds = normal_interval(rho, resampled_rank_correlations(screened[None], harm, counts)[0], FISHER)
    edge = NORMAL / (n - 1) ** 0.5
    return Scalar.of(
        rho, "1",
        Interval.of(bounds, "bootstrap over the random heads, prompts held fixed; Fisher's z", "no head differs"),
        Null("estimates and harm paired at random", 0.0, (-edge, edge)),
        meaning=f"Spearman's rank correlation of the screen's estimate and the measured harm ({how} ablation; "
        f"{measure}) of heads drawn at random from all {plan.n_all}, on the same {scores.units.n} {scores.units.name}s",
        n=n, n_unit="head", underpowered=n < FEW_UNITS,
    )  # fmt: skip


def missed_scalar(scores: Scores, choice: Choice, effects: np.ndarray, measure: str) -> Scalar:
    """How many of the heads that were passed over do more harm than the second of those that were chosen."""
    plan, mean = choice.plan, mean_of_units(effects)
    how = plan.how[0]
    is_other = np.isin(choice.measured(how), choice.passed_over)
    second = np.sort(mean[~is_other])[-2:][0]
    n, found = int(is_other.sum()), int((mean[is_other] > second).sum())
    bounds = stats.binomtest(found, n).proportion_ci(0.95, "exact") if n else None
    return Scalar.of(
        found / n if n else 0.0, "fraction",
        Interval.of(
            bounds, "Clopper and Pearson, over the random heads that were passed over",
            "no random head was passed over",
        ),
        "a screen that misses nothing has 0",
        meaning=f"part of the heads passed over that do more harm ({how} ablation; {measure}) than the second of those "
        "that were chosen",
        n=n, n_unit="head", underpowered=n < FEW_UNITS,
    )  # fmt: skip
