"""The numbers and tables of the probe `heads`: effects by head, by layer, and of sets of heads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from interp.statistics.correlation import resampled_rank_correlations
from interp.statistics.estimates import Estimates
from interp.statistics.intervals import FISHER, NORMAL, maximum_statistic_p, share_bounds
from interp.statistics.ratio import ratio
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import FEW_UNITS, Units, mean_of_units
from interp.table import Table, number_columns

from ..measures.harm import MEANINGS, Scores
from ..measures.profiles import head_columns
from ..measures.sign_flips import flipped_means, harm_estimates
from .choice import Choice
from .edits import LATE, PARTS, How, Plan
from .quantities import QUANTITIES

BY_HEAD = (
    "Bits of harm when one head's output is replaced (0 is none, below 0 the model does better), with 95 % bootstrap "
    "bands over prompts; p by flipping signs of whole prompts, corrected over all heads. null: removing a random "
    "subspace of as many dimensions from the layer's head outputs (mean and range of the draws). size: norm of the "
    "change over norm of the head outputs. donor_sd: standard deviation between draws of the donors."
)
SCREENED = (
    " chosen: by the screen or at random; heads that are not measured have the screen's estimate alone (screened). p "
    "is corrected over the measured heads, and from them to all (Šidák)."
)
BY_LAYER = (
    "Bits of harm when a layer is bypassed or half of it adds nothing, with 95 % bootstrap bands over prompts; p by "
    "flipping signs of whole prompts, corrected over the layers. ratio: error over that of the unedited model."
)
SETS = (
    "Heads removed together. joint: random sets (their mean, its 95 % band over prompts, and the least and most of the "
    "sets); summed: the sum of their members' single effects; excess: joint minus summed, above 0 where heads stand in "
    "for one another. top: the most harmful heads, ranked on one half of the prompts and tested on the other."
)


def by_draw(scores: Scores, choice: Choice, how: How, measure: str) -> Float[np.ndarray, "draw unit measured"]:
    """Harm of every measured head by donors' draw."""
    plan, heads = choice.plan, choice.measured(how).tolist()
    named = ([plan.single(how, head, draw) for head in heads] for draw in range(plan.draws(how)))
    return np.stack([scores.changes(names, measure) for names in named])


def by_head_table(scores: Scores, choice: Choice, measures: Sequence[str], primary: str) -> Table:
    """One row for every head and kind of ablation, NaN for heads that were not measured."""
    plan, parts = choice.plan, []
    for how in plan.how:
        heads, found = choice.measured(how), {}
        for measure in measures:
            found |= scores.harm(by_draw(scores, choice, how, measure).mean(axis=0), measure).columns(measure)
        found["size"] = scores.sizes([plan.single(how, head) for head in heads.tolist()])
        draws = by_draw(scores, choice, how, primary).mean(axis=1)
        found["donor_sd"] = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(len(heads), np.nan)
        columns = {"how": np.full(plan.n_all, how), **head_columns(plan.n_layers, plan.n_heads)}
        for name, column in found.items():
            if name.endswith("_p") and len(heads) < plan.n_all:  # the others were left out for doing less
                column = 1 - (1 - column) ** (plan.n_all / len(heads))
            columns[name] = np.full(plan.n_all, np.nan)
            columns[name][heads] = column
        columns |= _null_columns(scores, plan, how, primary)
        if plan.is_screened:
            columns |= {"chosen": choice.labels(how), "screened": mean_of_units(choice.estimates[how])}
        parts.append(columns)
    return QUANTITIES.stacked(parts, BY_HEAD + (SCREENED if plan.is_screened else ""))


def random_effects(scores: Scores, plan: Plan, layer: int, measure: str) -> Float[np.ndarray, " draw"]:
    """Mean harm of removing each random subspace of one layer's head outputs."""
    return mean_of_units(scores.changes(plan.random(layer), measure))


def range_of(draws: Float[np.ndarray, " draw"]) -> Float[np.ndarray, " mean_low_high"]:
    """Mean and range: of 39 draws the range is a 95 % interval for one more, whatever their distribution."""
    return np.array([draws.mean(), draws.min(), draws.max()])


def _null_columns(scores: Scores, plan: Plan, how: How, measure: str) -> dict[str, np.ndarray]:
    """Of zero ablation, which is the removal of a subspace; of the others there is no such null."""
    bounds = np.full((plan.n_layers, 3), np.nan)
    if how == "zero" and plan.n_heads > 1:
        for layer in (each for each in range(plan.n_layers) if plan.random(each)[0] in scores.under):
            bounds[layer] = range_of(random_effects(scores, plan, layer, measure))
    value, *band = np.repeat(bounds, plan.n_heads, axis=0).T
    return number_columns("null", value, band)


def error_ratio(
    errors: Float[np.ndarray, "unit entry"], baseline: Float[np.ndarray, " unit"], units: Units,
    signs: Float[np.ndarray, "permutation unit"],
) -> Estimates:  # fmt: skip
    """Ratios of mean errors under edits to the mean error without, NaN where there is none to begin with.

    Null and p by flipping the sign of whole units' changes, one-sided, not corrected. The largest p of all layers tests
    whether every layer is needed (intersection-union).
    """
    before, change = mean_of_units(baseline), errors - baseline[:, None]
    observed, flipped = mean_of_units(change), flipped_means(change, signs)
    p = [maximum_statistic_p(observed[[i]], flipped[:, [i]])[0] for i in range(errors.shape[1])]
    value = ratio(mean_of_units(errors), before)
    found = Estimates.resampled(value, ratio(units.resampled(errors), units.resampled(baseline[:, None])))
    return units.about(found).permuted(1 + ratio(flipped, before), np.array(p))


def by_layer_table(scores: Scores, plan: Plan, measures: Sequence[str], error: str) -> Table:
    """One row for every layer and part of it."""
    parts = []
    for part in plan.parts:
        names = [plan.part(part, layer) for layer in range(plan.n_layers)]
        columns: dict[str, np.ndarray] = {"part": np.full(plan.n_layers, part), "layer": np.arange(plan.n_layers)}
        for measure in measures:
            columns |= scores.harm(scores.changes(names, measure), measure).columns(measure)
        found = error_ratio(scores.scores(names, error), scores.baseline(error), scores.units, scores.signs)
        columns |= number_columns("ratio", found.value, found.interval)
        parts.append(columns | {"size": scores.sizes(names)})
    return QUANTITIES.stacked(parts, BY_LAYER)


def sets_harm(
    scores: Scores, choice: Choice, size: int, measure: str
) -> tuple[Float[np.ndarray, "unit set"], Float[np.ndarray, "unit set"]]:
    """Harm of random sets of one size, and the sum of their members' own, all by the primary ablation and draw."""
    plan, how = choice.plan, choice.plan.how[0]
    joint = scores.changes([plan.set_of(size, i) for i in range(plan.n_sets)], measure)
    members = np.stack([np.isin(choice.measured(how), chosen) for chosen in plan.sets(size)])
    return joint, by_draw(scores, choice, how, measure)[0] @ members.T.astype(np.float64)


def sets_table(scores: Scores, choice: Choice, measure: str, held_out: np.ndarray) -> Table:
    """One row for every size of set; `held_out` are the units that the order of `top` was not found on."""
    plan, parts = choice.plan, []
    for size in plan.set_sizes:
        joint, summed = sets_harm(scores, choice, size, measure)
        means = mean_of_units(joint)
        part = {"n_heads": np.array([size]), "joint_least": means.min(keepdims=True),
                "joint_most": means.max(keepdims=True)}  # fmt: skip
        for name, values in (("joint", joint), ("summed", summed), ("excess", joint - summed)):
            signs = scores.signs if name == "excess" else None
            part |= harm_estimates(values.mean(axis=1, keepdims=True), scores.units, signs).columns(name)
        top = scores.changes([plan.top(size)], measure) if plan.top(size) in scores.under else np.nan
        part |= harm_estimates(np.where(held_out[:, None], top, np.nan), scores.units, None).columns("top")
        parts.append(part)
    return QUANTITIES.stacked(parts, SETS)


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


def head_estimates(
    scores: Scores, choice: Choice, primary: str, error: str, n_bootstrap: int, seed: int
) -> dict[str, Estimates]:
    """The primary ablation by both measures, and other ablations by the primary one."""
    plan, units, found = choice.plan, scores.units, dict[str, Estimates]()
    stands_for = choice.stands_for(n_bootstrap, np.random.default_rng([seed, 10]))
    measured = {"" if choice.is_primary(how) else f"_{how}": (how, primary) for how in plan.how}
    if error != primary:
        measured[f"_{error}"] = plan.how[0], error
    for suffix, (how, measure) in measured.items():
        effects = by_draw(scores, choice, how, measure).mean(axis=0)
        top = top_head(effects, units, scores.signs, stands_for if choice.is_primary(how) else 1.0)
        first, second = (int(choice.measured(how)[head]) for head in (top.top, top.second))
        beside = f"{how} ablation; the second is {_named(plan, second)}; the error is the {MEANINGS[measure]}"
        words = f"{_named(plan, first)} ({beside}){choice.in_words(how)}"
        mine = {f"top_head_ratio{suffix}": _ratio(top, units), f"top_head_share{suffix}": _share(top, choice, how)}
        if not suffix:
            mine["top_head_layer"] = Estimates(np.array([float(first // plan.n_heads)]))
        found |= {name: units.about(of, top=words) for name, of in mine.items()}
        if not suffix:
            found["top_head_effect"] = top_effect(scores, choice, first, effects[:, top.top], measure)
            if plan.is_screened:
                sample, rng = np.arange(len(plan.sample)), np.random.default_rng([seed, 11])
                counts = bootstrap_weights(sample, None, n_bootstrap, rng)
                found["screen_agreement"] = agreement(scores, choice, effects, measure, counts)
                found["screen_missed"] = missed(choice, effects, measure)
    return found


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


def top_effect(scores: Scores, choice: Choice, top: int, harm: Float[np.ndarray, " unit"], measure: str) -> Estimates:
    """Harm of the most harmful head beside random subspaces of its layer."""
    plan, how = choice.plan, choice.plan.how[0]
    words = {"measure": measure, "how": how, "head": _named(plan, top) + choice.in_words(how)}
    effect = scores.units.estimates(harm, **words)
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
