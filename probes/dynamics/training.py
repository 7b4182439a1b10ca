"""The readouts of all checkpoints as arrays, the curves that are compared, and the tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.capture import Capture
from interp.probe import Readout
from interp.statistics.estimates import Estimates
from interp.statistics.units import Units
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.maps import snippets
from .exchange import Exchange
from .quantities import QUANTITIES
from .read import ERRORS, STATISTICS, VALUES, reference_entropy, shown_rows
from .training_curves import Curve

FRAME, VALUE = "frame", "values"
BY_PROMPT = ("tv", "js", "entropy", "value_distance", "error.", "exchange.")
"""How the names of readouts begin that have a value for every prompt."""

Columns = dict[str, np.ndarray | Estimates]

MEANS = {"frame_tv": "tv", "frame_js": "js", "frame_tv_exchanged": "tv_exchanged", "attention_entropy": "entropy"}
"""Columns that are means over heads, and the readout of each."""

_STEP_CAPTION = (
    "By checkpoint, against the end of the training: attention over all layers and heads, values and their geometry at "
    "the primary layer (keys of tokens: layer 0), errors; 95 % intervals over prompts. `_exchanged`: to another "
    "sequence's rows."
)
_LAYER_CAPTION = "By checkpoint and layer: attention, mean over heads; values and their geometry; drift of W_QK."


@dataclass(frozen=True)
class Training:
    """Checkpoints in order; `read` are their readouts (module `read`), checkpoints in front, NaN where one lacks it.

    `end` are the errors of the end of the training, by prompt.
    """

    steps: Int[np.ndarray, " checkpoint"]
    units: Units
    layer: int
    read: Mapping[str, np.ndarray]
    end: Mapping[str, Float[np.ndarray, " prompt"]]

    @classmethod
    def of(cls, under: Mapping[str, Readout], end: Mapping[str, np.ndarray], units: Units, layer: int) -> "Training":
        """All readouts; prompts without an error (texts of one token) are left out."""
        readouts = [_spread(readout, units.n) for readout in under.values()]
        n_layers = readouts[0]["drift"].shape[0]
        known = {name: array for readout in readouts for name, array in readout.items()}
        read = {name: np.stack([r.get(name, np.full_like(array, np.nan)) for r in readouts])
                for name, array in known.items()}  # fmt: skip
        errors = [array for name, array in read.items() if name.startswith("error.")]
        kept = ~np.isnan(np.concatenate([*errors, *(array[None] for array in end.values())])).any(axis=0)
        read = {name: array[:, kept] if name.startswith(BY_PROMPT) else array for name, array in read.items()}
        steps = np.array([int(step) for step in under])
        return cls(steps, _only(units, kept), layer % n_layers, read, {name: x[kept] for name, x in end.items()})

    @property
    def errors(self) -> dict[str, Float[np.ndarray, "checkpoint prompt"]]:
        return {name: self.read[f"error.{name}"] for name in ERRORS if f"error.{name}" in self.read}

    @property
    def statistics(self) -> dict[str, Float[np.ndarray, "checkpoint entry layer"]]:
        return {name: self.read[f"stat.{name}"] for name in STATISTICS if f"stat.{name}" in self.read}

    @property
    def n_layers(self) -> int:
        return self.read["drift"].shape[1]

    @property
    def error(self) -> str:
        """The error of the headline."""
        return "entropy_error" if "entropy_error" in self.errors else "loss"

    @property
    def exchange(self) -> Exchange | None:
        """The errors with exchanged patterns; None where nothing was exchanged."""
        if "exchange.patterns" not in self.read:
            return None
        name, patterns, network = self.exchanged_error, self.read["exchange.patterns"], self.read["exchange.network"]
        has = ~np.isnan(np.concatenate([patterns, network])).any(axis=0)
        return Exchange(
            self.steps, self.errors[name][:, has], patterns[:, has], network[:, has], self.end[name][has],
            _only(self.units, has),
        )  # fmt: skip

    @property
    def exchanged_error(self) -> str:
        """The error of the exchange."""
        return "kl" if "kl" in self.errors else "loss"

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """The frame (if attention rows were kept), and what it is compared with: errors, output and values."""
        tv, values = self.read["tv"], self.read["value_distance"][..., self.layer]
        what = "total variation of attention to the end's, mean over layers and heads"
        followed = {FRAME: (tv.mean(axis=(2, 3)), what)}
        followed |= {name: (of - self.end[name], ERRORS[name]) for name, of in self.errors.items()}
        followed[VALUE] = values, f"distance of the values of layer {self.layer} from the end's"
        weights = self.units.weights
        return {name: Curve.of(of.T, weights, what) for name, (of, what) in followed.items() if not np.isnan(of).any()}


def _spread(readout: Readout, n_prompts: int) -> dict[str, np.ndarray]:
    """A readout with exchanges of all prompts, NaN for those without."""
    found = dict(readout)
    if (prompts := found.pop("exchange.prompts", None)) is not None:
        for name in ("exchange.patterns", "exchange.network"):
            found[name] = np.full(n_prompts, np.nan)
            found[name][prompts] = readout[name]
    return found


def _only(units: Units, kept: Any) -> Units:
    """Some of the prompts, and the resamples that contain any of them."""
    weights = units.weights[:, kept]
    weights = weights[weights.sum(axis=1) > 0]
    return replace(units, index=units.index[kept], weights=weights, cluster=units.cluster[kept])


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
