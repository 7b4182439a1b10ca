"""The tables of the probe `heads`: effects by head, by layer, and of sets of heads."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.statistics.units import mean_of_units
from interp.table import Table, number_columns

from ..measures.harm import SIGNED, Scores
from ..measures.profiles import head_columns
from ..measures.prompt_effects import Compounding, error_ratio, harm_estimates
from .choice import Choice
from .edits import How, Plan
from .quantities import QUANTITIES

Signs = Float[np.ndarray, "permutation unit"]

BY_HEAD = (
    "Bits of harm when one head's output is replaced (0 is none, below 0 the model does better), with 95 % bootstrap "
    "bands over prompts; p by flipping signs of whole prompts, corrected over all heads. null: removing a random "
    "subspace of as many dimensions from the layer's head outputs (mean and range of the draws). size: norm of the "
    "change over norm of the head outputs. donor_sd: standard deviation between draws of the donors."
)
SCREENED = (
    " chosen: by the screen or at random; heads that are not measured have the screen's estimate alone (screened). p "
    "is  corrected over the measured heads, and from them to all (Šidák)."
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


def head_effects(
    scores: Scores, choice: Choice, how: How, measure: str, prefix: str = ""
) -> Float[np.ndarray, "unit measured"]:
    """Harm of every measured head, the mean over donors' draws."""
    return np.mean(by_draw(scores, choice, how, measure, prefix), axis=0)


def by_draw(
    scores: Scores, choice: Choice, how: How, measure: str, prefix: str = ""
) -> Float[np.ndarray, "draw unit measured"]:
    """Harm of every measured head by draw; of another prompt set (`prefix`) there is one draw."""
    plan, heads = choice.plan, choice.measured(how)
    n_draws = 1 if prefix else plan.draws(how)
    names = [[prefix + plan.single(how, head, draw) for head in heads.tolist()] for draw in range(n_draws)]
    return np.stack([scores.changes(of_draw, measure) for of_draw in names])


def by_head_table(
    scores: Scores, choice: Choice, measures: Sequence[str], primary: str, signs: Signs, prefix: str = ""
) -> Table:
    """One row for every head and kind of ablation, NaN for heads that were not measured."""
    plan, parts = choice.plan, []
    for how in plan.how[:1] if prefix else plan.how:
        heads, found = choice.measured(how), {}
        for measure in measures:
            found |= _columns(measure, head_effects(scores, choice, how, measure, prefix), scores, signs)
        found |= {name: _for_all(p, plan.n_all) for name, p in found.items() if name.endswith("_p")}
        found["size"] = scores.sizes([prefix + plan.single(how, head) for head in heads.tolist()])
        if not prefix:
            draws = by_draw(scores, choice, how, primary).mean(axis=1)
            found["donor_sd"] = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(len(heads), np.nan)
        columns = {"how": np.full(plan.n_all, how), **head_columns(plan.n_layers, plan.n_heads)}
        columns |= {name: _among_all(column, heads, plan.n_all) for name, column in found.items()}
        if not prefix:
            columns |= _null_columns(scores, plan, how, primary)
        if plan.is_screened and not prefix:
            columns |= {"chosen": choice.labels(how), "screened": mean_of_units(choice.estimates[how])}
        parts.append(columns)
    return QUANTITIES.stacked(parts, BY_HEAD + (SCREENED if plan.is_screened else ""))


def _among_all(column: np.ndarray, heads: np.ndarray, n_all: int) -> np.ndarray:
    found = np.full(n_all, np.nan)
    found[heads] = column
    return found


def _for_all(p: np.ndarray, n_all: int) -> np.ndarray:
    """p that is corrected over some heads, corrected over all: the others were left out for doing less."""
    return p if len(p) == n_all else 1 - (1 - p) ** (n_all / len(p))


def random_effects(scores: Scores, plan: Plan, layer: int, measure: str) -> Float[np.ndarray, " draw"]:
    """Mean harm of removing each random subspace of one layer's head outputs."""
    return mean_of_units(scores.changes(plan.random(layer), measure))


def range_of(draws: Float[np.ndarray, " draw"]) -> tuple[float, tuple[float, float]]:
    """Mean and range: of 39 draws the range is a 95 % interval for one more, whatever their distribution."""
    return float(draws.mean()), (float(draws.min()), float(draws.max()))


def _null_columns(scores: Scores, plan: Plan, how: How, measure: str) -> dict[str, np.ndarray]:
    """Of zero ablation, which is the removal of a subspace; of the others there is no such null."""
    bounds = np.full((plan.n_layers, 3), np.nan)
    if how == "zero" and plan.n_random and plan.n_heads > 1:
        for layer in (each for each in range(plan.n_layers) if plan.random(each)[0] in scores.under):
            mean, band = range_of(random_effects(scores, plan, layer, measure))
            bounds[layer] = [mean, *band]
    value, *band = np.repeat(bounds, plan.n_heads, axis=0).T
    return number_columns("null", value, band)


def by_layer_table(
    scores: Scores, plan: Plan, measures: Sequence[str], error: str, signs: Signs, prefix: str = ""
) -> Table:
    """One row for every layer and part of it."""
    parts = []
    for part in plan.parts:
        names = [prefix + plan.part(part, layer) for layer in range(plan.n_layers)]
        columns: dict[str, np.ndarray] = {"part": np.full(plan.n_layers, part), "layer": np.arange(plan.n_layers)}
        for measure in measures:
            columns |= _columns(measure, scores.changes(names, measure), scores, signs)
        found = error_ratio(scores.scores(names, error), scores.baseline(error), scores.units, signs)
        columns |= number_columns("ratio", found.ratio, (found.low, found.high))
        parts.append(columns | {"size": scores.sizes(names)})
    return QUANTITIES.stacked(parts, BY_LAYER)


def compounding(scores: Scores, choice: Choice, size: int, measure: str) -> Compounding:
    """Random sets of one size beside their members, all by the primary ablation with the same donors."""
    plan = choice.plan
    how = plan.how[0]
    joint = scores.changes([plan.set_of(size, i) for i in range(plan.n_sets)], measure)
    members = np.stack([np.isin(choice.measured(how), chosen) for chosen in plan.sets(size)])
    return Compounding.of(joint, by_draw(scores, choice, how, measure)[0], members)


def sets_table(scores: Scores, choice: Choice, measure: str, judged: np.ndarray, signs: Signs) -> Table:
    """One row for every size of set; `judged` are the units that the order of `top` was not found on."""
    plan, rows = choice.plan, []
    for size in plan.set_sizes:
        found = compounding(scores, choice, size, measure)
        means = mean_of_units(found.joint)
        by_unit = {"joint": found.joint.mean(axis=1), "summed": found.summed.mean(axis=1), "excess": found.excess}
        row: dict[str, object] = {"n_heads": size, "joint_least": means.min(), "joint_most": means.max()}
        for name, values in by_unit.items():
            entry = harm_estimates(values[:, None], scores.units, signs if name == "excess" else None)
            row |= {column: value[0] for column, value in entry.columns(name).items()}
        rows.append(row | _top(scores, plan, size, measure, judged))
    return QUANTITIES.from_rows(rows, list(rows[0]), SETS)


def _top(scores: Scores, plan: Plan, size: int, measure: str, judged: np.ndarray) -> dict[str, object]:
    if plan.top(size) not in scores.under:
        return number_columns("top", np.nan, (np.nan, np.nan))
    change = scores.changes([plan.top(size)], measure)
    found = harm_estimates(np.where(judged[:, None], change, np.nan), scores.units, None)
    return {column: value[0] for column, value in found.columns("top").items()}


def _columns(name: str, effects: np.ndarray, scores: Scores, signs: Signs) -> dict[str, np.ndarray]:
    return harm_estimates(effects, scores.units, signs if name in SIGNED else None).columns(name)
