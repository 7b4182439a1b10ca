"""The numbers of the probe `heads`, or the reason why one cannot be given."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.statistics.correlation import resampled_rank_correlations
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, NORMAL, share_bounds
from interp.statistics.units import FEW_UNITS, mean_of_units

from ..measures.harm import MEANINGS, Scores
from ..measures.prompt_effects import TopHead, error_ratio, harm_estimates
from ..measures.sign_flips import flipped_means
from .choice import Choice
from .edits import LATE, PARTS, How, Plan
from .tables import Signs, compounding, random_effects, range_of

NOTHING_TRIED = Estimates.undefined(
    "no edit was tried: the probe was given the unedited model alone", words={"top": "none"}
)


def _with_words(found: Estimates, **words: str) -> Estimates:
    return replace(found, words={**found.words, **words})


def _one(scores: Scores, value: float, why: str = "", **words: str) -> Estimates:
    """One value without interval and null."""
    return Estimates(
        np.array([value]), why=why, about=scores.units.counted,
        words={"unit": scores.units.name, "drawn": scores.units.drawn, **words},
    )  # fmt: skip


def top_head_estimates(scores: Scores, choice: Choice, found: TopHead, how: How, measure: str) -> dict[str, Estimates]:
    """Ratio to the second, share of all harm, and the layer it is in."""
    plan, heads = choice.plan, choice.measured(how)
    top, second = _named(plan, int(heads[found.top])), _named(plan, int(heads[found.second]))
    beside = f"{how} ablation; the second is {second}; the error is the {MEANINGS[measure]}"
    words = f"{top} ({beside}){choice.in_words(how)}"
    return {
        "ratio": _with_words(_ratio(scores, found), top=words),
        "share": _with_words(_share(scores, found, choice, how), top=words),
        "layer": _one(scores, float(heads[found.top] // plan.n_heads), top=words),
    }


def _named(plan: Plan, head: int) -> str:
    return f"layer {head // plan.n_heads} head {head % plan.n_heads}"


def _always(replicates: Float[np.ndarray, " resample"]) -> Float[np.ndarray, "resample 1"]:
    """Replicates of a number that has an interval only where every one of them is defined."""
    return np.where(np.isnan(replicates).any(), np.nan, replicates)[:, None]


def _ratio(scores: Scores, found: TopHead) -> Estimates:
    if np.isnan(found.ratio):
        return _one(scores, np.nan, "no second head does any harm: read top_head_share")
    one = _one(scores, found.ratio)
    ratio = Estimates.resampled(one.value, _always(found.ratio_replicates), about=one.about, words=one.words)
    if np.isnan(found.exchanged_ratio).any():
        none = _with_words(ratio, exchanged="swapped, one of the two sometimes does no harm")
        return replace(none, p=np.array([found.p]))
    named = _with_words(ratio, exchanged=f"the two heads swapped in {scores.units.name}s chosen at random")
    return named.exchanged(found.exchanged_ratio[:, None], np.array([found.p]))


def _share(scores: Scores, found: TopHead, choice: Choice, how: How) -> Estimates:
    if not choice.can_be_summed(how):
        return _one(scores, np.nan, "no head that was passed over was ablated so: there is no sum over all heads")
    if np.isnan(found.share):
        return _one(scores, np.nan, "no head does any harm")
    plan, words = choice.plan, {"also": "", "standing": ""}
    if plan.is_screened:
        words = {
            "also": ", and over the random heads",
            "standing": "; the random heads stand in the sum for all that were passed over",
        }
    one = _one(scores, found.share, n_all=str(plan.n_all), **words)
    share = Estimates.resampled(one.value, _always(found.share_replicates), about=one.about, words=one.words)
    return share.against(np.full((3, 1), 1 / plan.n_all))


def top_effect(scores: Scores, choice: Choice, found: TopHead, effects: np.ndarray, measure: str) -> Estimates:
    """Harm of the most harmful head beside random subspaces of its layer."""
    plan, how = choice.plan, choice.plan.how[0]
    top = int(choice.measured(how)[found.top])
    words = {"measure": measure, "how": how, "head": _named(plan, top) + choice.in_words(how)}
    effect = scores.units.estimates(effects[:, found.top], **words)
    if how != "zero" or not plan.n_random or plan.n_heads < 2:
        return _with_words(effect, null="random subspaces match zero ablation alone, in layers of several heads")
    layer = top // plan.n_heads
    name = f"removing a random subspace of as many dimensions from layer {layer}'s z (range of {plan.n_random})"
    mean, bounds = range_of(random_effects(scores, plan, layer, measure))
    return _with_words(effect, null=name).against(np.array([[mean], *([x] for x in bounds)]))


def bypass(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Estimates:
    """The smallest error ratio of all layers, each bypassed by itself."""
    names = [plan.part(PARTS[0], layer) for layer in range(plan.n_layers)]
    found = error_ratio(scores.scores(names, measure), scores.baseline(measure), scores.units, signs)
    if np.isnan(found.ratio).any() or np.isnan(found.low).any():
        return _one(scores, np.nan, "the unedited model makes no error to compare with", measure=measure)
    layer = found.smallest
    one = _one(scores, found.ratio[layer], measure=measure, layer=str(layer))
    held = replace(one, interval=np.array([[found.low[layer]], [found.high[layer]]]))
    return held.exchanged(found.flipped[:, [layer]], np.array([found.p_of_all]))


def late_attention(scores: Scores, plan: Plan, measure: str, signs: Signs) -> Estimates:
    """Error without attention in the top two layers; the null is the model as it is."""
    values, before = scores.score(LATE, measure), scores.baseline(measure)
    words = {"what": MEANINGS[measure], "layers": " and ".join(map(str, plan.late_layers))}
    unedited = scores.units.estimates(before)
    assert unedited.interval is not None
    p = harm_estimates((values - before)[:, None], scores.units, signs).p
    return scores.units.estimates(values, **words).against(np.vstack([unedited.value, unedited.interval]), p)


def compounding_estimates(scores: Scores, choice: Choice, measure: str, signs: Signs) -> Estimates:
    """Excess of the largest random sets over the sum of their members."""
    plan = choice.plan
    size = plan.set_sizes[-1]
    among = f" among the {len(plan.sample)} random ones" if plan.is_screened else ""
    excess = compounding(scores, choice, size, measure).excess[:, None]
    found = harm_estimates(excess, scores.units, signs)
    found = _with_words(found, measure=measure, n_sets=str(plan.n_sets), size=str(size), among=among)
    return found.exchanged(flipped_means(excess, signs), found.p)


def _of_random_heads(n: int) -> dict[str, Any]:
    return {"n": n, "n_unit": "head", "underpowered": n < FEW_UNITS}


def agreement(
    scores: Scores, choice: Choice, effects: np.ndarray, measure: str, counts: Int[np.ndarray, "resample head"]
) -> Estimates:
    """Rank correlation of the screen with the ablations, over the random heads; `counts` resample these."""
    plan, units = choice.plan, scores.units
    how, n = plan.how[0], len(plan.sample)
    screened = mean_of_units(choice.estimates[how])[plan.sample]
    harm = mean_of_units(effects)[np.isin(choice.measured(how), plan.sample)]
    once = np.ones((1, n), dtype=np.int64)
    rho = resampled_rank_correlations(screened[None], harm, once)[0]
    edge = NORMAL / (n - 1) ** 0.5
    words = {"how": how, "measure": measure, "n_all": str(plan.n_all), "n_units": str(units.n), "unit": units.name}
    replicates = resampled_rank_correlations(screened[None], harm, counts).T
    found = Estimates.resampled(rho, replicates, FISHER, about=_of_random_heads(n), words=words)
    return found.against(np.array([[0.0], [-edge], [edge]]))


def missed(choice: Choice, effects: np.ndarray, measure: str) -> Estimates:
    """How many of the heads that were passed over do more harm than the second of those that were chosen."""
    how, mean = choice.plan.how[0], mean_of_units(effects)
    is_other = np.isin(choice.measured(how), choice.passed_over)
    second = np.sort(mean[~is_other])[-2:][0]
    n, found = int(is_other.sum()), int((mean[is_other] > second).sum())
    bounds = np.array([share_bounds(found, n)]).T if n else None
    words = {"how": how, "measure": measure}
    return Estimates(np.array([found / n if n else 0.0]), bounds, about=_of_random_heads(n), words=words)
