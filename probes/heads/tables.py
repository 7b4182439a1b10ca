"""The tables of the probe `heads`: effects by head, by layer, and of sets of heads."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.statistics.estimates import Estimates
from interp.statistics.intervals import maximum_statistic_p
from interp.statistics.ratio import ratio
from interp.statistics.units import Units, mean_of_units
from interp.table import Table, number_columns

from ..measures.harm import Scores
from ..measures.profiles import head_columns
from ..measures.sign_flips import flipped_means, harm_estimates
from .choice import Choice
from .edits import How, Plan
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
