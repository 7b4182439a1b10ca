"""The tables of the dynamics probe: by checkpoint, by checkpoint and layer, updates, and what the pictures show."""

from collections.abc import Callable

import numpy as np

from interp.capture import Capture
from interp.statistics.estimate import band
from interp.table import LABEL, Table, number_columns

from ..measures.maps import snippets
from .courses import epsilons, interval_of, resampled, settled
from .frame import MATRICES, product_of_random
from .read import ERRORS, N_ENTRIES, STATISTICS, reference_entropy, shown_rows
from .training import FRAME, Training

MEANS = {"frame_tv": ("tv", "fraction"), "frame_js": ("js", "bits"), "frame_tv_exchanged": ("tv_exchanged", "fraction"),
         "attention_entropy": ("entropy", "bits")}  # fmt: skip
"""Columns that are means over heads: the readout and its unit."""

_STEP_CAPTION = (
    "By checkpoint, against the end of the training: attention over all layers and heads, values and their geometry at "
    "the primary layer (keys of tokens: layer 0), errors; 95 % intervals over prompts. `_exchanged`: to another "
    "sequence's rows."
)
_LAYER_CAPTION = "By checkpoint and layer: attention, mean over heads; values and their geometry; drift of W_QK."


class _Columns:
    """Columns with their units, taken in one after the other."""

    def __init__(self, training: Training) -> None:
        self.weights = training.units.weights
        self.columns: dict[str, np.ndarray] = {}
        self.units: dict[str, str] = {}

    def add(self, name: str, values: np.ndarray, unit: str) -> None:
        self.columns[name], self.units[name] = values.ravel(), unit

    def mean(self, name: str, values: np.ndarray, unit: str) -> None:
        """The mean over prompts of `[checkpoint, prompt, ...]` with its bootstrap interval."""
        self.add(name, values.mean(axis=1), unit)
        bounds = np.full((2, self.columns[name].size), np.nan)
        if not np.isnan(values).any():
            flat = np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)
            bounds = band((self.weights @ flat) / self.weights.sum(axis=1, keepdims=True))
        self.columns |= number_columns(name, self.columns[name], bounds)

    def table(self, caption: str) -> Table:
        return Table(self.columns, self.units, caption)


def step_table(training: Training) -> Table:
    """One row a checkpoint."""
    made = _Columns(training)
    made.add("step", training.steps, "steps")
    for name, (read, unit) in MEANS.items():
        made.mean(name, training.by_prompt[read].mean(axis=(2, 3)), unit)
    drift = training.of_weights["drift"]
    for suffix, reduce in (("", np.mean), ("_min", np.min), ("_max", np.max)):
        made.add(f"wqk_drift{suffix}", reduce(drift, axis=(1, 2)), "1")
    made.mean("value_distance", training.by_prompt["value_distance"][..., training.layer], "1")
    for name, values in training.errors.items():
        made.mean(name, values, ERRORS[name][0])
    _finished(made, training, lambda name, entry: _primary(training, name)[:, entry])
    return made.table(_STEP_CAPTION)


def _primary(training: Training, name: str) -> np.ndarray:
    """A finished statistic at the primary layer, `[checkpoint, entry]`; keys of tokens at layer 0, where they are."""
    return training.finished[name][:, :, 0 if name == "token_keys" else training.layer]


def step_layer_table(training: Training) -> Table:
    """One row a checkpoint and layer."""
    made = _Columns(training)
    n = training.n_layers
    made.add("step", np.repeat(training.steps, n), "steps")
    made.add("layer", np.tile(np.arange(n), len(training.steps)), "layer")
    for name, (read, unit) in MEANS.items():
        made.mean(name, training.by_prompt[read].mean(axis=3), unit)
    made.add("wqk_drift", training.of_weights["drift"].mean(axis=2), "1")
    made.mean("value_distance", training.by_prompt["value_distance"], "1")
    _finished(made, training, lambda name, entry: training.finished[name][:, entry])
    return made.table(_LAYER_CAPTION)


def _finished(made: _Columns, training: Training, pick: Callable[[str, int], np.ndarray]) -> None:
    for name in training.finished:
        value, low, high, *null = (pick(name, entry).ravel() for entry in range(N_ENTRIES))
        made.columns |= number_columns(name, value, (low, high), null)
        made.units[name] = STATISTICS[name]


def settled_table(training: Training, epsilon: float) -> Table:
    """For every course and fraction ε: the step at which it has settled, and between which checkpoints."""
    courses = training.courses()
    frame = training.frame
    if frame is not None:
        courses = {FRAME: frame, **courses, **training.frame_by_layer()}
    rows = []
    for name, course in courses.items():
        curve, resamples = course.distance.mean(axis=0), resampled(course, training.units.weights)
        for fraction in sorted({*epsilons(courses), epsilon}, reverse=True):
            step, bounds = settled(training.steps, curve, fraction), band(settled(training.steps, resamples, fraction))
            after, until = interval_of(training.steps, curve, fraction) or (np.nan, np.nan)
            rows.append({
                "course": name, "epsilon": fraction, **number_columns("step", float(step), bounds),
                "after": float(after), "until": float(until),
            })  # fmt: skip
    units = {"course": LABEL, "epsilon": "fraction", "step": "steps", "after": "steps", "until": "steps"}
    caption = (
        "Step from which on each course stays within a fraction of its first distance from the end, and the two "
        "checkpoints it lies between. Whether one course is early depends on the fraction: compare down the table."
    )
    return Table.from_rows(rows, units, caption)


def updates_table(training: Training) -> Table:
    """One row for every checkpoint after the first, and layer: relative updates of the weights."""
    made = _Columns(training)
    n, later = training.n_layers, training.steps[1:]
    made.add("step_from", np.repeat(training.steps[:-1], n), "steps")
    made.add("step", np.repeat(later, n), "steps")
    made.add("layer", np.tile(np.arange(n), len(later)), "layer")
    for matrix in MATRICES:
        made.add(f"w_{matrix}", training.of_weights[f"update.{matrix}"][1:], "1")
    made.add("w_qk_expected", product_of_random(made.columns["w_v"]), "1")
    return made.table(
        "Relative updates ‖ΔW‖/‖W‖ since the checkpoint before. `w_qk_expected`: what W_QK would do if queries and "
        "keys each moved as far as the values, in random directions. Weights have no interval."
    )


def points_table(training: Training, final: Capture) -> Table:
    """Where the shown rows' values lie in the end's first plane, at every checkpoint."""
    shown = shown_rows(final)
    coordinates = training.shown["coordinates"]
    n = len(training.steps)
    columns = {
        "step": np.repeat(training.steps, shown.sum()),
        "prompt": np.tile(final.rows["prompt"][shown], n),
        "position": np.tile(final.rows["position"][shown], n),
        "pc1": coordinates[..., 0].ravel(),
        "pc2": coordinates[..., 1].ravel(),
        "entropy_bits": np.tile(reference_entropy(final)[shown], n),
    }
    units = {"step": "steps", "prompt": "index", "position": "tokens", "pc1": "activation", "pc2": "activation",
             "entropy_bits": "bits"}  # fmt: skip
    if final.prompts.is_text:
        columns["text"], units["text"] = np.tile(snippets(final.rows.where(shown), final), n), LABEL
    whose = "the exact posterior's" if "bayes_entropy_bits" in final.rows else "that of the end"
    return Table(
        columns, units, f"Values on the first two principal axes of the end's, about the end's mean; entropy: {whose}."
    )


def attention_table(training: Training, final: Capture) -> Table:
    """The attention map of the first sequence at every checkpoint; keys it cannot see are left out."""
    maps = training.shown["map"]
    n_steps, n_rows, n_keys = maps.shape
    mine = final.rows["prompt"] == final.rows["prompt"][0]
    is_sequence = bool(mine.sum() > 1)
    row = final.rows["position"][mine] if is_sequence else np.arange(n_rows)
    columns = {
        "step": np.repeat(training.steps, n_rows * n_keys),
        "row": np.tile(np.repeat(row, n_keys), n_steps),
        "key": np.tile(np.arange(n_keys), n_steps * n_rows),
        "weight": maps.ravel(),
    }
    seen = ~np.isnan(columns["weight"])
    units = {"step": "steps", "row": "tokens" if is_sequence else "layer", "key": "tokens", "weight": "fraction"}
    caption = (
        "Attention weights of the first sequence at its scored positions, in the head of the primary layer that ends "
        "sharpest."
        if is_sequence
        else "Attention weights of the last token of the first text, one row a layer, mean over heads."
    )
    return Table({name: column[seen] for name, column in columns.items()}, units, caption)
