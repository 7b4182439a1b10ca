"""The tables of the probe `heads`: effects by head, by layer, and of sets of heads."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.table import LABEL, Table, number_columns

from ..measures.harm import MEANINGS, SIGNED, Scores
from ..measures.profiles import head_columns
from ..measures.prompt_effects import Compounding, error_ratio, estimates
from ..measures.prompt_means import mean_of_units
from .edits import How, Plan

Signs = Float[np.ndarray, "permutation unit"]

BY_HEAD = (
    "Bits of harm when one head's output is replaced (0 is none, below 0 the model does better), with 95 % bootstrap "
    "bands over prompts; p by flipping signs of whole prompts, corrected over all heads. null: removing a random "
    "subspace of as many dimensions from the layer's head outputs (mean and range of the draws). size: norm of the "
    "change over norm of the head outputs. donor_sd: standard deviation between draws of the donors."
)
BY_LAYER = (
    "Bits of harm when a layer is bypassed or half of it adds nothing, with 95 % bootstrap bands over prompts; p by "
    "flipping signs of whole prompts, corrected over the layers. ratio: error over that of the unedited model."
)
SETS = (
    "Heads removed together. joint: random sets (their mean, its 95 % band over prompts, and the least and most of the "
    "sets); summed: the sum of their members' single effects; excess: joint minus summed, above 0 where heads stand in "
    "for one another. top: the most harmful heads, ranked on one half of the prompts and judged on the other."
)

_UNITS = {
    "how": LABEL, "part": LABEL, "layer": "layer", "head": "head", "ratio": "1", "size": "fraction",
    "donor_sd": "bits", "null": "bits", **dict.fromkeys(MEANINGS, "bits"),
}  # fmt: skip


def head_effects(
    scores: Scores, plan: Plan, how: How, measure: str, prefix: str = ""
) -> Float[np.ndarray, "unit head"]:
    """Harm of every head, the mean over donors' draws."""
    return np.mean(by_draw(scores, plan, how, measure, prefix), axis=0)


def by_draw(
    scores: Scores, plan: Plan, how: How, measure: str, prefix: str = ""
) -> Float[np.ndarray, "draw unit head"]:
    """Harm of every head by draw; of another prompt set (`prefix`) there is one draw."""
    n_draws = 1 if prefix else plan.draws(how)
    names = [[prefix + plan.single(how, head, draw) for head in range(plan.n_all)] for draw in range(n_draws)]
    return np.stack([scores.changes(of_draw, measure) for of_draw in names])


def by_head_table(
    scores: Scores, plan: Plan, measures: Sequence[str], primary: str, signs: Signs, prefix: str = ""
) -> Table:
    """One row for every head and kind of ablation."""
    parts = []
    for how in plan.how[:1] if prefix else plan.how:
        columns = {"how": np.full(plan.n_all, how), **head_columns(plan.n_layers, plan.n_heads)}
        for measure in measures:
            columns |= _columns(measure, head_effects(scores, plan, how, measure, prefix), scores, signs)
        names = [prefix + plan.single(how, head) for head in range(plan.n_all)]
        columns["size"] = scores.sizes(names)
        if not prefix:
            draws = by_draw(scores, plan, how, primary).mean(axis=1)
            columns["donor_sd"] = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(plan.n_all, np.nan)
            columns |= _null_columns(scores, plan, how, primary)
        parts.append(columns)
    return Table.stacked(parts, _UNITS, BY_HEAD)


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
        for layer in range(plan.n_layers):
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
    return Table.stacked(parts, _UNITS, BY_LAYER)


def compounding(scores: Scores, plan: Plan, size: int, measure: str) -> Compounding:
    """Random sets of one size beside their members, all by the primary ablation with the same donors."""
    joint = scores.changes([plan.set_of(size, i) for i in range(plan.n_sets)], measure)
    members = np.zeros((plan.n_sets, plan.n_all), dtype=bool)
    for mine, chosen in zip(members, plan.sets(size), strict=True):
        mine[chosen] = True
    return Compounding.of(joint, by_draw(scores, plan, plan.how[0], measure)[0], members)


def sets_table(scores: Scores, plan: Plan, measure: str, judged: np.ndarray, signs: Signs) -> Table:
    """One row for every size of set; `judged` are the units that the order of `top` was not found on."""
    rows = []
    for size in plan.set_sizes:
        found = compounding(scores, plan, size, measure)
        means = mean_of_units(found.joint)
        by_unit = {"joint": found.joint.mean(axis=1), "summed": found.summed.mean(axis=1), "excess": found.excess}
        row: dict[str, object] = {"n_heads": size, "joint_least": means.min(), "joint_most": means.max()}
        for name, values in by_unit.items():
            entry = estimates(values[:, None], scores.units, signs if name == "excess" else None)
            row |= {column: value[0] for column, value in entry.columns(name).items()}
        rows.append(row | _top(scores, plan, size, measure, judged))
    names = ("joint_least", "joint_most", "joint", "summed", "excess", "top")
    return Table.from_rows(rows, {"n_heads": "heads"} | dict.fromkeys(names, "bits"), SETS)


def _top(scores: Scores, plan: Plan, size: int, measure: str, judged: np.ndarray) -> dict[str, object]:
    if plan.top(size) not in scores.under:
        return number_columns("top", np.nan, (np.nan, np.nan))
    change = scores.changes([plan.top(size)], measure)
    found = estimates(np.where(judged[:, None], change, np.nan), scores.units, None)
    return {column: value[0] for column, value in found.columns("top").items()}


def _columns(name: str, effects: np.ndarray, scores: Scores, signs: Signs) -> dict[str, np.ndarray]:
    return estimates(effects, scores.units, signs if name in SIGNED else None).columns(name)
