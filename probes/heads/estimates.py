"""The numbers of the probe `heads`, or the reason why one cannot be given."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from interp.statistics.correlation import resampled_rank_correlations
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, NORMAL, maximum_statistic_p, share_bounds
from interp.statistics.ratio import ratio
from interp.statistics.units import FEW_UNITS, Units, mean_of_units

from ..measures.harm import MEANINGS, Scores
from ..measures.sign_flips import flipped_means, harm_estimates
from .choice import Choice
from .edits import LATE, PARTS, How, Plan
from .tables import error_ratio, random_effects, range_of, sets_harm


@dataclass(frozen=True)
class TopHead:
    """The most harmful head beside the second; `ratio` is NaN where the second does no harm.

    Ratio and share are as measured, and then in every resample.
    """

    top: int
    second: int
    ratio: Float[np.ndarray, " one_and_resamples"]
    share: Float[np.ndarray, " one_and_resamples"]
    permuted_ratio: Float[np.ndarray, " permutation"]
    p: float


def top_head(
    effects: Float[np.ndarray, "unit head"], units: Units, signs: Float[np.ndarray, "permutation unit"],
    stands_for: Float[np.ndarray, "one_and_resamples head"] | float = 1.0,
) -> TopHead:  # fmt: skip
    """Whether one head matters more than the second; resamples hold the two fixed.

    Null: the two swapped in random units. p is of their difference in bits, which is always defined; as the two are
    chosen from the data, it is exact if they are equal and above all others, conservative if more are equal. The share
    is of the harm of all harmful heads, each measured one weighted by how many it `stands_for`.
    """
    means = np.vstack([mean_of_units(effects), units.resampled(effects)])
    second, top = (int(i) for i in np.argsort(means[0], kind="stable")[-2:])
    harm, (first, other) = means.clip(0), means[0, [top, second]]
    permuted = np.abs(flipped_means((effects[:, top] - effects[:, second])[:, None], signs))
    together, apart = first + other, permuted[:, 0]
    return TopHead(
        top, second,
        ratio(means[:, top], means[:, second]),
        ratio(harm[:, top], (harm * stands_for).sum(axis=1)),
        ratio(together + apart, together - apart),
        float(maximum_statistic_p(np.array([first - other]), permuted)[0]),
    )  # fmt: skip


def top_head_estimates(scores: Scores, choice: Choice, found: TopHead, how: How, measure: str) -> tuple[Estimates, ...]:
    """The most harmful head's ratio to the second, share of all harm, and layer."""
    plan, units = choice.plan, scores.units
    top, second = (int(choice.measured(how)[head]) for head in (found.top, found.second))
    beside = f"{how} ablation; the second is {_named(plan, second)}; the error is the {MEANINGS[measure]}"
    words = f"{_named(plan, top)} ({beside}){choice.in_words(how)}"
    layer = Estimates(np.array([float(top // plan.n_heads)]))
    parts = _ratio(found, units), _share(found, choice, how), layer
    return tuple(units.about(part, top=words) for part in parts)


def _named(plan: Plan, head: int) -> str:
    return f"layer {head // plan.n_heads} head {head % plan.n_heads}"


def _resampled(values: Float[np.ndarray, " one_and_resamples"]) -> Estimates:
    """With an interval only where it is defined in every resample."""
    replicates = np.where(np.isnan(values).any(), np.nan, values[1:])
    return Estimates.resampled(values[:1], replicates[:, None])


def _ratio(found: TopHead, units: Units) -> Estimates:
    if np.isnan(found.ratio[0]):
        return Estimates.undefined("no second head does any harm: read top_head_share")
    times, p = _resampled(found.ratio), np.array([found.p])
    if np.isnan(found.permuted_ratio).any():
        return replace(times.with_words(permuted="swapped, one of the two sometimes does no harm"), p=p)
    named = times.with_words(permuted=f"the two heads swapped in random {units.name}s")
    return named.permuted(found.permuted_ratio[:, None], p)


def _share(found: TopHead, choice: Choice, how: How) -> Estimates:
    if not choice.can_be_summed(how):
        return Estimates.undefined("no head that was passed over was ablated so: there is no sum over all heads")
    if np.isnan(found.share[0]):
        return Estimates.undefined("no head does any harm")
    plan, words = choice.plan, {"also": "", "standing": ""}
    if plan.is_screened:
        words = {
            "also": ", and over the random heads",
            "standing": "; the random heads stand in the sum for all that were passed over",
        }
    share = _resampled(found.share).with_words(n_all=str(plan.n_all), **words)
    return share.against(np.full((3, 1), 1 / plan.n_all))


def top_effect(scores: Scores, choice: Choice, found: TopHead, effects: np.ndarray, measure: str) -> Estimates:
    """Harm of the most harmful head beside random subspaces of its layer."""
    plan, how = choice.plan, choice.plan.how[0]
    top = int(choice.measured(how)[found.top])
    words = {"measure": measure, "how": how, "head": _named(plan, top) + choice.in_words(how)}
    effect = scores.units.estimates(effects[:, found.top], **words)
    if how != "zero" or plan.n_heads < 2:
        return effect.with_words(null="random subspaces match zero ablation alone, in layers of several heads")
    layer = top // plan.n_heads
    name = f"removing a random subspace of as many dimensions from layer {layer}'s z (range of {plan.n_random})"
    return effect.with_words(null=name).against(range_of(random_effects(scores, plan, layer, measure))[:, None])


def bypass(scores: Scores, plan: Plan, measure: str) -> Estimates:
    """The smallest error ratio of all layers, each bypassed alone; p is the largest of all."""
    names = [plan.part(PARTS[0], layer) for layer in range(plan.n_layers)]
    found = error_ratio(scores.scores(names, measure), scores.baseline(measure), scores.units, scores.signs)
    assert found.interval is not None and found.p is not None
    if np.isnan(found.value).any() or np.isnan(found.interval).any():
        none = Estimates.undefined("the unedited model makes no error to compare with", words={"measure": measure})
        return scores.units.about(none)
    layer = int(found.value.argmin())
    smallest = found.at([layer]).with_words(measure=measure, layer=str(layer))
    return replace(smallest, p=found.p.max(keepdims=True))


def late_attention(scores: Scores, plan: Plan, measure: str) -> Estimates:
    """Error without attention in the top two layers; the null is the model as it is."""
    words = {"what": MEANINGS[measure], "layers": " and ".join(map(str, plan.late_layers))}
    unedited = scores.units.estimates(scores.baseline(measure))
    assert unedited.interval is not None
    p = scores.harm(scores.changes([LATE], measure), measure).p
    found = scores.units.estimates(scores.score(LATE, measure), **words)
    return found.against(np.vstack([unedited.value, unedited.interval]), p)


def compounding(scores: Scores, choice: Choice, measure: str) -> Estimates:
    """Excess of the largest random sets over the sum of their members."""
    plan = choice.plan
    size = plan.set_sizes[-1]
    among = f" among the {len(plan.sample)} random ones" if plan.is_screened else ""
    joint, summed = sets_harm(scores, choice, size, measure)
    excess = (joint - summed).mean(axis=1, keepdims=True)
    found = harm_estimates(excess, scores.units, scores.signs)
    found = found.with_words(measure=measure, n_sets=str(plan.n_sets), size=str(size), among=among)
    return found.permuted(flipped_means(excess, scores.signs), found.p)


def _of_random_heads(n: int) -> dict[str, Any]:
    return {"n": n, "n_unit": "head", "underpowered": n < FEW_UNITS}


def agreement(
    scores: Scores, choice: Choice, effects: np.ndarray, measure: str, counts: Num[np.ndarray, "resample head"]
) -> Estimates:
    """Rank correlation of the screen with the ablations, over the random heads; `counts` resample these."""
    plan, units = choice.plan, scores.units
    how, n = plan.how[0], len(plan.sample)
    screened = mean_of_units(choice.estimates[how])[plan.sample]
    harm = mean_of_units(effects)[np.isin(choice.measured(how), plan.sample)]
    counts = np.vstack([np.ones(n, dtype=np.int64), counts])
    rho = resampled_rank_correlations(screened[None], harm, counts).T
    edge = NORMAL / (n - 1) ** 0.5
    words = {"how": how, "measure": measure, "n_all": str(plan.n_all), "n_units": str(units.n), "unit": units.name}
    found = Estimates.resampled(rho[0], rho[1:], FISHER, about=_of_random_heads(n), words=words)
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
