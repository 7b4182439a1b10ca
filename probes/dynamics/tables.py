"""The tables of the dynamics probe: by checkpoint, by checkpoint and layer, and the points of the figures."""

from collections.abc import Mapping

import numpy as np

from interp.capture import Capture
from interp.statistics.estimates import Estimates
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.maps import snippets
from .quantities import QUANTITIES
from .read import VALUES, reference_entropy, shown_rows
from .training import Training

Columns = dict[str, np.ndarray | Estimates]

MEANS = {"frame_tv": "tv", "frame_js": "js", "frame_tv_exchanged": "tv_exchanged", "attention_entropy": "entropy"}
"""Columns that are means over heads, and the readout of each."""

_STEP_CAPTION = (
    "By checkpoint, against the end of the training: attention over all layers and heads, values and their geometry at "
    "the primary layer (keys of tokens: layer 0), errors; 95 % intervals over prompts. `_exchanged`: to another "
    "sequence's rows."
)
_LAYER_CAPTION = "By checkpoint and layer: attention, mean over heads; values and their geometry; drift of W_QK."


def _means(training: Training, values: Mapping[str, np.ndarray]) -> Columns:
    """Means over prompts of `[checkpoint, prompt, ...]` with their bootstrap intervals."""
    return {name: training.units.estimates(np.moveaxis(x, 1, 0)) for name, x in values.items()}


def _finished(found: np.ndarray) -> Estimates:
    """Statistics with interval and null, `[checkpoint, entry, ...]`."""
    entries = np.moveaxis(found, 1, 0).reshape(found.shape[1], -1)
    return Estimates(entries[0], entries[1:3], entries[3:])


def step_table(training: Training) -> Table:
    """One row a checkpoint; statistics at the primary layer, keys of tokens at layer 0."""
    layer, drift = training.layer, training.read["drift"]
    columns: Columns = {
        "step": training.steps,
        **_means(training, {name: training.read[read].mean(axis=(2, 3)) for name, read in MEANS.items()}),
        "wqk_drift": drift.mean(axis=(1, 2)), "wqk_drift_min": drift.min(axis=(1, 2)),
        "wqk_drift_max": drift.max(axis=(1, 2)),
        **_means(training, {"value_distance": training.read["value_distance"][..., layer], **training.errors}),
        **{name: _finished(x[:, :, 0 if name == "token_keys" else layer]) for name, x in training.statistics.items()},
    }  # fmt: skip
    return QUANTITIES.table(columns, _STEP_CAPTION)


def step_layer_table(training: Training) -> Table:
    """One row a checkpoint and layer."""
    n = training.n_layers
    columns: Columns = {
        "step": np.repeat(training.steps, n), "layer": np.tile(np.arange(n), len(training.steps)),
        **_means(training, {name: training.read[read].mean(axis=3) for name, read in MEANS.items()}),
        "wqk_drift": training.read["drift"].mean(axis=2).ravel(),
        **_means(training, {"value_distance": training.read["value_distance"]}),
        **{name: _finished(x) for name, x in training.statistics.items()},
    }  # fmt: skip
    return QUANTITIES.table(columns, _LAYER_CAPTION)


def points_table(training: Training, final: Capture) -> Table:
    """The values of the shown rows in the end's first plane, at every checkpoint."""
    shown, n = shown_rows(Cloud.of(final, VALUES)), len(training.steps)
    coordinates = training.read["coordinates"]
    columns = {
        "step": np.repeat(training.steps, shown.sum()),
        "prompt": np.tile(final.rows["prompt"][shown], n),
        "position": np.tile(final.rows["position"][shown], n),
        "pc1": coordinates[..., 0].ravel(),
        "pc2": coordinates[..., 1].ravel(),
        "entropy_bits": np.tile(reference_entropy(final)[shown], n),
    }
    if final.prompts.is_text:
        columns["text"] = np.tile(snippets(final.rows.where(shown), final), n)
    whose = "the exact posterior's" if "bayes_entropy_bits" in final.rows else "that of the end"
    return QUANTITIES.table(
        columns, f"Values on the first two principal axes of the end's, about the end's mean; entropy: {whose}."
    )
