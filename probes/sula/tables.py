"""The tables of the SULA probe: by condition, along the evidence, by layer, and prompt by prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import Scalar
from interp.statistics.estimate import mean_and_band
from interp.table import LABEL, Table, number_columns

from ..measures.answers import Answers
from ..measures.calibration import UNITS, Constants
from ..measures.exchanges import mean_bands, rearranged_within
from ..measures.maps import snippets
from .movement import VARIABLES, Moved

ALONG_UNITS = {
    "condition": LABEL, "evidence": "observations", "n": "rows", "bayes_entropy": "bits", "model_entropy": "bits",
    "residual": "bits", "error": "bits", "error_mean_constant": "bits", "error_best_constant": "bits",
    "error_always_open": "bits", "kl": "bits", "excluded_mass": "fraction", "outcome_mass": "fraction",
    "error_noise_reader": "bits", "kl_noise_reader": "bits",
}  # fmt: skip

MOVEMENT_UNITS = {
    "what": LABEL, "condition": LABEL, "first": LABEL, "axis": LABEL, "layer": "layer", "variable": LABEL,
    "rho": "1", "p": "probability",
}  # fmt: skip


def by_condition_table(answers: Answers, found: Mapping[str, Mapping[str, Scalar]]) -> Table:
    """Every number of calibration in every condition, beside the errors of readers without skill."""
    rows = []
    for condition, scalars in found.items():
        mine = answers.where(answers.condition == condition)
        row: dict[str, object] = {"condition": condition, "n": mine.n_units}
        for name, scalar in scalars.items():
            p = np.nan if scalar.p is None else scalar.p
            row |= number_columns(name, scalar.value, scalar.interval or (np.nan, np.nan), p=p)
        errors = _no_skill(mine, Constants.of(mine))
        row |= {name: float(x.mean()) for name, x in errors.items()}
        row["kl_reverse"] = float(mine.kl_reverse.mean()) if np.isfinite(mine.kl_reverse).all() else np.nan
        row["excluded_mass"] = float(mine.excluded_mass.mean())
        row |= {name: float(x.mean()) for name, x in _noise_reader(mine).items()}
        rows.append(row)
    units = {"condition": LABEL, "n": f"{answers.unit_name}s", **UNITS}
    bits = ("error_mean_constant", "error_best_constant", "error_always_open", "kl_reverse")
    units |= dict.fromkeys(bits, "bits") | {"excluded_mass": "fraction"}
    units |= dict.fromkeys(("error_noise_reader", "kl_noise_reader"), "bits")
    return Table.from_rows(
        rows, units,
        "Numbers of each condition with 95 % intervals. error_mean_constant, error_best_constant and error_always_open "
        "are the entropy errors of readers who always name the mean entropy, its median, or all outcomes open. The "
        "noise reader knows that labels are noise. kl_reverse is missing where an outcome is impossible.",
    )  # fmt: skip


def _no_skill(answers: Answers, constants: Constants) -> dict[str, np.ndarray]:
    named = {"mean_constant": constants.mean, "best_constant": constants.best, "always_open": constants.open}
    return {f"error_{name}": np.abs(value - answers.entropy_exact) for name, value in named.items()}


def _noise_reader(answers: Answers) -> dict[str, np.ndarray]:
    """Entropy error and divergence from who knows that labels are noise; NaN where the prompts do not say."""
    if answers.noise is None:
        return dict.fromkeys(("error_noise_reader", "kl_noise_reader"), np.full(len(answers), np.nan))
    entropy = -np.sum(answers.noise * np.log2(answers.noise, where=answers.noise > 0, out=np.zeros_like(answers.noise)),
                      axis=1)  # fmt: skip
    return {
        "error_noise_reader": np.abs(answers.entropy_model - entropy),
        "kl_noise_reader": answers.kl_from(answers.noise),
    }


def along_table(answers: Answers, n_bootstrap: int, rng: np.random.Generator) -> Table:
    """Calibration by condition and amount of evidence."""
    rows = []
    for condition in answers.conditions:
        constants = Constants.of(answers.where(answers.condition == condition))
        for amount in np.unique(answers.evidence[answers.condition == condition]):
            mine = answers.where((answers.condition == condition) & (answers.evidence == amount))
            error = mine.entropy_model - mine.entropy_exact
            banded = {"model_entropy": mine.entropy_model, "residual": error, "error": np.abs(error), "kl": mine.kl}
            plain = {
                "bayes_entropy": mine.entropy_exact,
                "excluded_mass": mine.excluded_mass,
                "outcome_mass": np.exp2(mine.log_mass),
                **_no_skill(mine, constants),
                **_noise_reader(mine),
            }
            row: dict[str, object] = {"condition": condition, "evidence": amount, "n": len(mine)}
            row |= {name: float(x.mean()) for name, x in plain.items()}
            bounds = mean_bands(np.stack(list(banded.values())), mine.cluster, n_bootstrap, rng)
            for (name, values), interval in zip(banded.items(), bounds.T, strict=True):
                row |= number_columns(name, float(values.mean()), interval)
            rows.append(row)
    units = ALONG_UNITS | {"evidence": answers.evidence_unit}
    return Table.from_rows(
        rows, units,
        "Means by amount of evidence with 95 % bootstrap bands; the residual is H_model − H_Bayes. Constants are those "
        "of the whole condition.",
    )  # fmt: skip


@dataclass(frozen=True)
class Test:
    """Correlations of all places of one kind (`what`: values or attention), condition and choice of first amounts."""

    what: str
    condition: str
    first: str
    axes: Sequence[str]
    moved: Mapping[str, Moved]


def movement_table(tests: Sequence[Test]) -> Table:
    """One row for every correlation; places of a test run axis by axis, layer by layer."""
    rows = []
    for test in tests:
        for variable in VARIABLES:
            moved = test.moved[variable]
            null = np.where(np.isnan(moved.rho), np.nan, mean_and_band(moved.by_chance)).T  # [place, value and bounds]
            places = [(axis, layer) for axis in test.axes for layer in range(len(moved.rho) // len(test.axes))]
            for i, (axis, layer) in enumerate(places):
                rows.append({
                    "what": test.what, "condition": test.condition, "first": test.first, "axis": axis, "layer": layer,
                    "variable": variable, "p": moved.p[i],
                    **number_columns("rho", moved.rho[i], moved.intervals[i] or (np.nan, np.nan), null[i]),
                })  # fmt: skip
    return Table.from_rows(
        rows, MOVEMENT_UNITS,
        "Rank correlations with the amount of evidence, with the exact entropy, and with it at equal amounts; `first` "
        "says whether rows without evidence are in. Rows are missing a number where nothing varies.",
    )  # fmt: skip


def trajectory_table(
    coordinates: Mapping[str, Float[np.ndarray, " row"]], answers: Answers, n_permutations: int, n_bootstrap: int,
    rng: np.random.Generator,
) -> Table:  # fmt: skip
    """Mean coordinate by condition and amount, beside amounts permuted between rows of the condition."""
    rows = []
    names, values = list(coordinates), np.stack(list(coordinates.values()))
    for condition in answers.conditions:
        in_condition = answers.condition == condition
        of_condition = answers.where(in_condition)
        shuffled = rearranged_within(of_condition.unit, of_condition.cluster, n_permutations, rng)
        for amount in np.unique(of_condition.evidence):
            at = of_condition.evidence == amount
            here = values[:, in_condition][:, at]
            bounds = mean_bands(here, of_condition.where(at).cluster, n_bootstrap, rng)
            null = np.array([values[i, in_condition][shuffled][:, at].mean(axis=1) for i in range(len(names))])
            of_null = mean_and_band(null.T)
            for i, axis in enumerate(names):
                rows.append({
                    "condition": condition, "axis": axis, "evidence": amount, "n": int(at.sum()),
                    **number_columns("coordinate", here[i].mean(), bounds[:, i], of_null[:, i]),
                })  # fmt: skip
    units = {"condition": LABEL, "axis": LABEL, "evidence": answers.evidence_unit, "n": "rows",
             "coordinate": "deviations"}  # fmt: skip
    return Table.from_rows(
        rows, units,
        "Mean coordinate at the primary layer, in deviations of the prompts that the axis was fitted on, for prompts "
        "that it was not fitted on; null: amounts of evidence permuted.",
    )  # fmt: skip


def attention_table(
    entropy: Float[np.ndarray, "layer row"], answers: Answers, n_bootstrap: int, rng: np.random.Generator
) -> Table:
    """Attention entropy by condition, amount and layer."""
    rows = []
    for condition in answers.conditions:
        for amount in np.unique(answers.evidence[answers.condition == condition]):
            at = (answers.condition == condition) & (answers.evidence == amount)
            bounds = mean_bands(entropy[:, at], answers.where(at).cluster, n_bootstrap, rng)
            for layer, mean in enumerate(entropy[:, at].mean(axis=1)):
                rows.append({
                    "condition": condition, "layer": layer, "evidence": amount,
                    **number_columns("attention_entropy", mean, bounds[:, layer]),
                })  # fmt: skip
    units = {"condition": LABEL, "layer": "layer", "evidence": answers.evidence_unit, "attention_entropy": "bits"}
    return Table.from_rows(
        rows, units,
        "Entropy of the attention row at the scored position, mean over heads, with 95 % bootstrap bands. It grows "
        "with the length of a prompt: compare prompts of equal length.",
    )  # fmt: skip


def answers_table(answers: Answers, capture: Capture) -> Table:
    """One row for every answer: entropies, with two outcomes the log-odds, and of text the end of it."""
    columns = {
        "condition": answers.condition, "evidence": answers.evidence, "bayes_entropy": answers.entropy_exact,
        "model_entropy": answers.entropy_model, "kl": answers.kl, "outcome_mass": np.exp2(answers.log_mass),
    }  # fmt: skip
    units = {
        "condition": LABEL, "evidence": answers.evidence_unit, "bayes_entropy": "bits", "model_entropy": "bits",
        "kl": "bits", "outcome_mass": "fraction",
    }  # fmt: skip
    if answers.posterior.shape[1] == 2 and (answers.posterior > 0).all():
        log_p = np.log2(answers.posterior)
        columns["exact_log_odds"] = log_p[:, 0] - log_p[:, 1]
        columns["model_log_odds"] = answers.log_q[:, 0] - answers.log_q[:, 1]
        units |= {"exact_log_odds": "bits", "model_log_odds": "bits"}
    columns["prompt"], units["prompt"] = capture.rows["prompt"], capture.rows.units["prompt"]
    if capture.prompts.is_text:
        columns["text"], units["text"] = snippets(capture.rows, capture), LABEL
    return Table(columns, units, "Every answer; log-odds are for the label of the smaller token id.")
