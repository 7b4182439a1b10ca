"""The tables of the SULA probe: by condition, along the evidence, by layer, and prompt by prompt."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.information import entropy_bits
from interp.statistics.estimates import Estimates
from interp.table import Table

from ..measures.answers import Answers
from ..measures.maps import snippets
from ..measures.permutations import mean_bands, rearranged_within
from .movement import AXES, VARIABLES
from .quantities import QUANTITIES


def by_condition_table(answers: Answers, found: Mapping[str, Mapping[str, Estimates]]) -> Table:
    """Every number of calibration in every condition, beside the errors of readers without skill."""
    parts = []
    for condition, numbers in found.items():
        mine = answers.where(answers.condition == condition)
        reverse = np.array(mine.kl_reverse.mean() if np.isfinite(mine.kl_reverse).all() else np.nan)
        parts.append({
            "condition": np.array(condition), "n": np.array(mine.n_units),
            **{name: replace(number, null=None) for name, number in numbers.items()},
            "kl_reverse": reverse, **_beside(mine, mine.entropy_exact),
        })  # fmt: skip
    return QUANTITIES.stacked(
        parts,
        "Numbers of each condition with 95 % intervals. error_mean_constant, error_best_constant and error_always_open "
        "are the entropy errors of readers who always name the mean entropy, its median, or all outcomes open. The "
        "noise reader knows that labels are noise. kl_reverse is missing where an outcome is impossible.",
        n=f"{answers.unit_name}s",
    )


def _beside(answers: Answers, exact: Float[np.ndarray, " row"]) -> dict[str, np.ndarray]:
    """Mean errors of readers who always name the mean or the median of `exact` entropies, or all outcomes open.

    And of one who knows that labels are noise (NaN where none is known).
    """
    most = np.log2(answers.posterior.shape[1])
    named = {"mean_constant": exact.mean(), "best_constant": np.median(exact), "always_open": most}
    found = {f"error_{name}": np.abs(value - answers.entropy_exact) for name, value in named.items()}
    noise, unknown = answers.noise, np.full(1, np.nan)
    found["error_noise_reader"] = unknown if noise is None else np.abs(answers.entropy_model - entropy_bits(noise))
    found["kl_noise_reader"] = unknown if noise is None else answers.kl_from(noise)
    found["excluded_mass"] = answers.excluded_mass
    return {name: np.array(values.mean()) for name, values in found.items()}


def along_table(answers: Answers, n_bootstrap: int, rng: np.random.Generator) -> Table:
    """Calibration by condition and amount of evidence."""
    parts = []
    for condition in answers.conditions:
        whole = answers.where(answers.condition == condition)
        for amount in np.unique(whole.evidence):
            mine = whole.where(whole.evidence == amount)
            error = mine.entropy_model - mine.entropy_exact
            banded = {"model_entropy": mine.entropy_model, "residual": error, "error": np.abs(error), "kl": mine.kl}
            values = np.stack(list(banded.values()))
            means = Estimates(values.mean(axis=1), mean_bands(values, mine.cluster, n_bootstrap, rng))
            parts.append({
                "condition": np.array(condition), "evidence": np.array(amount), "n": np.array(len(mine)),
                **{name: means.at([i]) for i, name in enumerate(banded)},
                "bayes_entropy": np.array(mine.entropy_exact.mean()),
                "outcome_mass": np.array(np.exp2(mine.log_mass).mean()),
                **_beside(mine, whole.entropy_exact),
            })  # fmt: skip
    return QUANTITIES.stacked(
        parts,
        "Means by amount of evidence with 95 % bootstrap bands; the residual is H_model − H_Bayes. Constants are those "
        "of the whole condition.",
        evidence=answers.evidence_unit,
    )


def movement_table(tests: Mapping[tuple[str, str], Mapping[str, Estimates]]) -> Table:
    """One row for every correlation of the tests, by condition and choice of first amounts.

    Places of a test run axis by axis, layer by layer.
    """
    parts = []
    for ((condition, first), correlations), variable in product(tests.items(), VARIABLES):
        moved = correlations[variable]
        layers = np.arange(len(moved.value) // len(AXES))
        assert moved.p is not None
        parts.append({
            "condition": np.array(condition), "first": np.array(first),
            "axis": np.repeat(AXES, len(layers)), "layer": np.tile(layers, len(AXES)), "variable": np.array(variable),
            "rho": replace(moved, p=None), "p": moved.p,
        })  # fmt: skip
    return QUANTITIES.stacked(
        parts,
        "Rank correlations with the amount of evidence, with the exact entropy, and with it at equal amounts; `first` "
        "says whether rows without evidence are in. Rows are missing a number where nothing varies.",
    )


def trajectory_table(
    coordinates: Mapping[str, Float[np.ndarray, " row"]], answers: Answers, n_permutations: int, n_bootstrap: int,
    rng: np.random.Generator,
) -> Table:  # fmt: skip
    """Mean coordinate by condition and amount, beside amounts permuted between rows of the condition."""
    parts, values = [], np.stack(list(coordinates.values()))
    for condition in answers.conditions:
        in_condition = answers.condition == condition
        of_condition = answers.where(in_condition)
        shuffled = rearranged_within(of_condition.unit, of_condition.cluster, n_permutations, rng)
        for amount in np.unique(of_condition.evidence):
            at = of_condition.evidence == amount
            here = values[:, in_condition][:, at]
            bounds = mean_bands(here, of_condition.where(at).cluster, n_bootstrap, rng)
            null = np.array([of_axis[shuffled][:, at].mean(axis=1) for of_axis in values[:, in_condition]])
            parts.append({
                "condition": np.array(condition), "axis": np.array(list(coordinates)),
                "evidence": np.array(amount), "n": np.array(at.sum()),
                "coordinate": Estimates(here.mean(axis=1), bounds).permuted(null.T, asks="nothing"),
            })  # fmt: skip
    return QUANTITIES.stacked(
        parts,
        "Mean coordinate at the primary layer, in deviations of the prompts that the axis was fitted on, for prompts "
        "that it was not fitted on; null: amounts of evidence permuted.",
        evidence=answers.evidence_unit,
    )


def answers_table(answers: Answers, capture: Capture) -> Table:
    """One row for every answer: entropies, with two outcomes the log-odds, and of text the end of it."""
    columns = {
        "condition": answers.condition, "evidence": answers.evidence, "bayes_entropy": answers.entropy_exact,
        "model_entropy": answers.entropy_model, "kl": answers.kl, "outcome_mass": np.exp2(answers.log_mass),
    }  # fmt: skip
    if answers.posterior.shape[1] == 2 and (answers.posterior > 0).all():
        log_p = np.log2(answers.posterior)
        columns["exact_log_odds"] = log_p[:, 0] - log_p[:, 1]
        columns["model_log_odds"] = answers.log_q[:, 0] - answers.log_q[:, 1]
    columns["prompt"] = capture.rows["prompt"]
    if capture.prompts.is_text:
        columns["text"] = snippets(capture.rows, capture)
    caption = "Every answer; log-odds are for the label of the smaller token id."
    return QUANTITIES.table(columns, caption, evidence=answers.evidence_unit, prompt=capture.rows.units["prompt"])
